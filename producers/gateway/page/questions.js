// A question as a form: cards, buttons, a text box. Which, its kind and payload say, the same
// way as on the page behind a one-time link.
import {make} from "./elements.js";
import {has, moment, span, t} from "./texts.js";

// {title, facts, cards: [{label, lines, value}], buttons: [{label, value, main}],
//  typed: null | "text" | "json" | "note"}
export function formOf(question) {
  const {kind, response_schema: schema} = question;
  const payload = plain(question.payload) ?? {}, data = plain(question.data) ?? {};
  const form = {title: title(question), facts: [], cards: [], buttons: [], typed: null};
  if (kind === "approve") {
    form.buttons = [{label: t("approve"), value: "approve", main: true}, {label: t("reject"), value: "reject"}];
    form.typed = "note";
    form.actions = actions(question.payload);
    return form;
  }
  if (kind === "continue") {
    form.buttons = [{label: t("go_on"), value: "continue", main: true}];
    return form;
  }
  form.buttons = bySchema(schema);
  if (!form.buttons.length && Array.isArray(payload.options)) {
    form.buttons = payload.options.slice(0, 50).map((value) => ({label: label(value), value}));
  } else if (!form.buttons.length && kind === "confirm") {
    form.facts = facts(data);
    form.buttons = [{label: t("yes"), value: {confirmed: true}, main: true}, {label: t("no"), value: {confirmed: false}}];
  } else if (!form.buttons.length && kind === "select_room" && Array.isArray(data.candidates)) {
    form.cards = data.candidates.slice(0, 50).filter((room) => plain(room)?.id !== undefined).map(card);
  }
  const offered = form.buttons.length || form.cards.length;
  if (question.text || (schema?.type === "string" && !schema.enum)) form.typed = "text";
  else if (!offered) form.typed = "json";
  return form;
}

// Its elements. answer(value, label) takes what is picked or written; `alone`: the page's own
// text box takes the words, so the question needs none. `spoken`: its words stand above already.
export function questionElement(item, {answer, alone, spoken}) {
  const form = formOf(item.question), closed = item.state !== "open";
  const box = make("fieldset", {class: "question", "data-kind": item.question.kind, "data-state": item.state});
  box.append(make("legend", {class: "unseen"}, form.title));
  if (!spoken) box.append(make("p", {class: "title"}, form.title));
  if (form.actions) box.append(...form.actions.map((a) => make("pre", {}, a)));
  if (form.facts.length) {
    box.append(make("dl", {class: "facts"}, ...form.facts.flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, v)])));
  }
  const note = form.typed && !(alone && form.typed === "text") && !closed ? typed(form, answer) : null;
  const pick = ({label, value}) => answer(valueOf(item.question, value, note?.value()), label);
  if (form.cards.length) {
    box.append(make("div", {class: "cards"}, ...form.cards.map((c) => cardElement(c, item, closed, () => pick(c)))));
  }
  if (note) box.append(note.element);
  if (form.buttons.length) {
    box.append(make("div", {class: "choices"}, ...form.buttons.map((b) => {
      const button = make("button", {type: "button", class: b.main ? "main" : ""}, b.label);
      return choice(button, b, item, closed, () => pick(b));
    })));
  }
  // Words that were answered by words stand above and below.
  const told = item.state === "answered" && spoken && !form.buttons.length && !form.cards.length ? "" : standing(item);
  if (told) box.append(make("p", {class: "note"}, told));
  return box;
}

function standing(item) {
  if (item.state === "open") return item.question.expires_at ? t("until", {when: moment(item.question.expires_at)}) : "";
  const what = item.chosen ? `${t("chosen", {what: item.chosen})} – ` : "";
  return what + t(`q_${item.state}`);
}

function typed(form, answer) {
  const long = form.typed !== "note";
  const area = make("textarea", {rows: long ? "2" : "1", maxlength: "20000"});
  const name = {text: "label_answer", json: "answer_json", note: "note"}[form.typed];
  const element = make("form", {}, make("label", {}, t(name), area));
  if (long) element.append(make("button", {type: "submit"}, t("answer")));
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    const said = area.value.trim();
    if (said && long) answer(form.typed === "json" ? jsonOrWords(said) : said, said);
  });
  return {element, value: () => area.value.trim()};
}

function cardElement(room, item, closed, act) {
  const lines = room.lines.map((line) => make("span", {}, line));
  return choice(make("button", {type: "button", class: "card"}, make("strong", {}, room.label), ...lines), room, item, closed, act);
}

function choice(button, {label}, item, closed, act) {
  button.disabled = closed;
  if (item.chosen === label) button.classList.add("chosen");
  button.addEventListener("click", act);
  return button;
}

function valueOf(question, value, note) {
  if (question.kind !== "approve") return value;
  const all = actions(question.payload).length || 1;
  const decision = value === "approve" ? {type: "approve"} : {type: "reject", ...(note ? {message: note} : {})};
  return {decisions: Array.from({length: all}, () => decision)};
}

// What is to be approved is listed below it.
function title({kind, message, payload}) {
  if (kind === "approve" && actions(payload).length) return `${t("approve")}?`;
  return message || JSON.stringify(payload, null, 2);
}

function actions(payload) {
  const listed = Array.isArray(payload) ? payload : payload?.action_requests;
  return Array.isArray(listed) ? listed.map((a) => {
    const request = plain(a?.action_request) ?? a;
    const name = request?.name ?? request?.action ?? "";
    const told = request?.description ?? a?.description;
    return `${told ? `${told}\n` : ""}${name} ${JSON.stringify(request?.args ?? {}, null, 2)}`;
  }) : [];
}

function bySchema(schema) {
  if (schema?.type === "boolean") return [{label: t("yes"), value: true, main: true}, {label: t("no"), value: false}];
  return Array.isArray(schema?.enum) && schema.enum.length <= 50 ? schema.enum.map((value) => ({label: label(value), value})) : [];
}

function card(room, index) {
  const lines = [];
  if (room.capacity !== undefined) lines.push(t("holds", {n: room.capacity}));
  if (Array.isArray(room.equipment) && room.equipment.length) {
    lines.push(room.equipment.map((e) => (has(e) ? t(e) : String(e))).join(t("comma")));
  }
  return {label: `${index + 1}. ${label(room.name ?? room.id)}`, lines, value: {room_id: room.id}};
}

function facts(data) {
  const found = [];
  if (data.room) found.push([t("room"), label(data.room)]);
  if (plain(data.slot)?.start) found.push([t("when"), span(data.slot)]);
  if (data.people !== undefined && data.people !== null) found.push([t("people"), String(data.people)]);
  return found;
}

function label(value) {
  const named = plain(value) ? value.label ?? value.name ?? value : value;
  return typeof named === "string" ? named : JSON.stringify(named);
}

function plain(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
}

function jsonOrWords(said) {
  try { return JSON.parse(said); } catch { return said; }
}
