// The conversation and the connection as elements. Each item has one, made anew only when it
// has changed.
import {by, make, put, show} from "./elements.js";
import {formOf, questionElement} from "./questions.js";
import {getLanguage, has, t} from "./texts.js";

export class View {
  #shown = new Map();  // key → {element, mark}

  // acts: answer(item, value, label), edit(entry), remove(entry)
  constructor(acts) { this.acts = acts; }

  // The page's own words, after a change of the language too.
  words(graph) {
    document.documentElement.lang = getLanguage() === "zh" ? "zh-CN" : "en";
    const name = graph === "booking" ? t("title") : `${t("chat")}: ${graph}`;
    document.title = name;
    put(by("title"), name);
    put(by("language"), t("language"));
    by("language").setAttribute("aria-label", t("language_label"));
    for (const id of ["anew", "hint", "send", "stop"]) put(by(id), t(id));
    put(by("signin-title"), t("signin"));
    put(by("token-label"), t("token"));
    put(by("signin-go"), t("signin_go"));
    by("log").setAttribute("aria-label", name);
    this.#shown.clear();
  }

  render(conversation, outbox, {graph, live}) {
    const main = document.querySelector("main");
    const below = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
    this.#log(conversation, outbox, live);
    show(by("hint"), graph === "booking" && !by("log").children.length);
    show(by("earlier"), conversation.earlier > 0);
    put(by("earlier"), t("earlier", {n: conversation.earlier}));
    this.#working(conversation);
    this.#phase(conversation.phase);
    this.#composer(conversation);
    by("stop").disabled = !live;
    if (below) main.scrollTop = main.scrollHeight;
  }

  connection({state, until}) {
    const n = until ? Math.max(0, Math.ceil((until - Date.now()) / 1000)) : 0;
    by("connection").dataset.state = state;
    // Each second of it is not read out.
    by("connection").setAttribute("aria-live", state === "waiting" ? "off" : "polite");
    put(by("connection"), t(state, {n}));
  }

  trouble(text, act = null) {
    const [words, button] = by("trouble").children;
    show(by("trouble"), Boolean(text));
    put(words, text ?? "");
    show(button, Boolean(act));
    put(button, act ? t("again") : "");
    button.onclick = act;
  }

  announce(items) {
    const told = items.map((i) => (i.kind === "asked" ? formOf(i.question).title : i.kind === "notice" ? notice(i) : i.text));
    if (told.length) put(by("announce"), told.at(-1));
  }

  #log(conversation, outbox, live) {
    const log = by("log"), kept = new Set(), alone = conversation.textQuestion;
    let place = 0, before = null;
    const lay = (key, mark, made) => {
      kept.add(key);
      let found = this.#shown.get(key);
      if (!found || found.mark !== mark) {
        const element = made();
        if (found) found.element.replaceWith(element);
        this.#shown.set(key, found = {element, mark});
      }
      if (log.children[place] !== found.element) log.insertBefore(found.element, log.children[place] ?? null);
      place += 1;
    };
    for (const item of conversation.items) {
      const spoken = item.kind === "asked" && before?.kind === "said" && before.text.trim() === formOf(item.question).title.trim();
      lay(item.key, `${item.rev}|${item === alone}|${spoken}`, () => this.#element(item, {alone: item === alone, spoken}));
      before = item;
    }
    for (const entry of outbox.entries) {
      lay(`mine:${entry.id}`, `${entry.state}|${entry.code}|${live}`, () => this.#mine(entry, live));
    }
    for (const key of this.#shown.keys()) if (!kept.has(key)) this.#shown.delete(key);
    while (log.children.length > place) log.lastElementChild.remove();
  }

  #element(item, how) {
    if (item.kind === "notice") return make("p", {class: item.bad ? "notice bad" : "notice"}, notice(item));
    if (item.kind === "asked") {
      const answer = (value, label) => this.acts.answer(item, value, label);
      return questionElement(item, {...how, answer});
    }
    return bubble(item.role, item.text, item.id, item.streaming ? "streaming" : "");
  }

  #mine(entry, live) {
    const refused = entry.state === "refused";
    const element = bubble("user", entry.text, entry.id, refused ? "refused" : "pending");
    const state = refused ? reason(entry) : t(entry.state === "acked" ? "queued" : live ? "on_its_way" : "held");
    element.append(make("small", refused ? {role: "alert"} : {}, state));
    if (refused) {
      const words = (entry.frame.content ?? entry.frame.value) === entry.text;
      const button = make("button", {type: "button"}, t(words ? "edit" : "remove"));
      button.addEventListener("click", () => (words ? this.acts.edit : this.acts.remove)(entry));
      element.append(button);
    }
    return element;
  }

  #working(conversation) {
    const tool = [...conversation.tools.values()].at(-1);
    show(by("working"), conversation.active);
    by("working").dataset.tool = conversation.active && tool ? tool.name : "";
    put(by("doing"), tool ? `${t("tool", {name: tool.name})} ${args(tool.args)}` : t("working"));
  }

  #phase(phase) {
    show(by("phase"), Boolean(phase));
    by("phase").dataset.phase = phase ?? "";
    put(by("phase"), phase && has(`phase_${phase}`) ? t(`phase_${phase}`) : phase ?? "");
  }

  #composer(conversation) {
    const open = conversation.open, asked = conversation.textQuestion;
    const blocked = open.length > 0 && !asked;
    const sent = blocked && open.every((i) => i.state === "sent");
    by("composer").classList.toggle("asked", Boolean(asked));
    const clarify = asked?.question.kind === "clarify";
    put(by("label"), blocked ? t(sent ? "q_sent" : "first") : clarify ? formOf(asked.question).title : t(asked ? "label_pick" : "label"));
    by("send").disabled = blocked;
    show(by("stop"), conversation.active || open.length > 0);
  }
}

// Why something was refused, in the page's own words where it has any.
export function reason({code, why}, fields = {}) {
  return has(`e_${code}`) ? t(`e_${code}`, fields) : why;
}

function notice(item) {
  const said = has(`n_${item.code}`) ? t(`n_${item.code}`) : "";
  return [said, item.text].filter(Boolean).join(" ") || item.code;
}

function bubble(role, text, id, more) {
  const who = make("span", {class: "unseen"}, `${t(role === "user" ? "you" : "agent")}: `);
  return make("div", {class: `said ${role} ${more}`.trim(), "data-id": id}, who, make("p", {dir: "auto"}, text));
}

function args(given) {
  const text = given && Object.keys(given).length ? JSON.stringify(given) : "";
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}
