// The chat page: what comes from the connection goes into the conversation, what its user does
// goes into the outbox, and the view shows both.
import {Connection} from "./connection.js";
import {Conversation} from "./conversation.js";
import {by, put, show} from "./elements.js";
import {Outbox} from "./outbox.js";
import {Stored, onChange} from "./storage.js";
import {getLanguage, preferred, setLanguage, t} from "./texts.js";
import {View, reason} from "./view.js";

const graph = new URLSearchParams(location.search).get("graph") || "booking";
const SESSION = `session:${graph}`;
const LARGEST = 64 * 1024;  // bytes of a frame
const AGAIN_AFTER = 3;  // seconds, where the gateway names none
// What becomes of a question whose answer was refused; else it is closed.
const SETTLES = {already_answered: "answered", expired: "expired", wrong_shape: "open", too_large: "open", forbidden: "open"};

const kept = new Stored("localStorage"), own = new Stored("sessionStorage");
const outbox = new Outbox(own);
const conversation = new Conversation((id) => outbox.find(id)?.text);
const view = new View({answer, edit, remove});
let session = kept.read(SESSION), link = {state: "connecting", until: null};
let fresh = false, rebuilt = null, lastError = null, due = 0, again = 0;
let before = null;  // the first message that has been got, also where it shows nothing

const connection = new Connection({
  address: address(),
  init: () => {
    const last_seq = conversation.lastSeq ?? undefined;
    return {type: "init", graph, session_id: session ?? undefined, last_seq, token: own.read("token") ?? undefined};
  },
  heard, over,
  changed: (state) => { link = state; view.connection(link); later(); },
});

// Beside the page, wherever a proxy has put that.
function address() {
  const url = new URL("ws", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = url.hash = "";
  return url.href;
}

// From the gateway

function heard(frame) {
  const act = {welcome, ack, error: frame.seq === undefined ? refused : took, recovery_start: ({reason: why}) => { rebuilt = why; }};
  (act[frame.type] ?? took)(frame);
  later();
}

function welcome(frame) {
  lastError = null;
  view.trouble(null);
  const other = kept.read(SESSION);
  if (session === null && other !== null && other !== frame.session_id) {
    // Two tabs that were opened at once: the first one's is everybody's.
    return follow(other);
  }
  session = frame.session_id;
  kept.write(SESSION, session);
  outbox.belongTo(session);
  conversation.busy = frame.active;
  // At once: what was meant as an answer is one to what this page has been shown by now.
  resend();
}

function took(frame) {
  const news = conversation.take(frame);
  outbox.drop((entry) => conversation.said(entry.id));
  if (frame.snapshot) {
    before = frame.messages[0]?.message_id ?? null;
    if (!conversation.active) outbox.drop((entry) => entry.state === "acked");
    for (const entry of outbox.unsent) answering(entry);
    if (rebuilt === "retracted" || rebuilt === "gone") news.push(conversation.note(rebuilt));
    rebuilt = null;
  }
  view.announce(news);
}

function ack({message_id, duplicate}) {
  const entry = outbox.mark(message_id, "acked");
  if (entry?.frame.type === "answer") conversation.settled(entry.frame.question_id, "answered");
  // It may have been done by now.
  else if (!duplicate && !conversation.said(message_id)) conversation.active = true;
  outbox.drop((e) => conversation.said(e.id));
}

// What this page has sent last was not taken.
function refused(frame) {
  const entry = frame.message_id && outbox.find(frame.message_id);
  if (frame.code === "fresh_token_needed") return signIn(t("signin_fresh"), true);
  if (frame.retry) {
    clearTimeout(again);
    again = setTimeout(resend, 1000 * (frame.retry_after ?? AGAIN_AFTER));
    return view.trouble(reason({code: frame.code, why: frame.message}));
  }
  if (!entry) { lastError = frame; return; }
  const code = frame.reason ?? frame.code;
  outbox.mark(entry.id, "refused", {code, why: frame.message});
  if (entry.frame.type === "answer") conversation.refused(entry.frame.question_id, SETTLES[code] ?? "closed");
}

// The connection has ended for good.
function over(code, why) {
  if (why === "unknown_session") {
    begin();
    view.announce([conversation.note("unknown_session")]);
  } else if (why === "unauthorized" || code === 4401) {
    signIn(own.read("token") === null ? null : t("signin_why"), false);
  } else {
    const told = reason({code: why, why: lastError?.message ?? why}, {graph});
    view.trouble(told, () => connection.open());
  }
}

// From the page's user

function say(text) {
  const asked = conversation.textQuestion;
  if (asked) return answer(asked, text, text);
  send(outbox.put({type: "message", content: text}, text));
}

function answer(item, value, label) {
  if (item.state !== "open") return;
  const entry = outbox.put({type: "answer", question_id: item.id, value}, label);
  answering(entry);
  send(entry);
}

function answering({frame, text}) {
  if (frame.type === "answer") conversation.sent(frame.question_id, text);
}

function send(entry) {
  const size = new TextEncoder().encode(JSON.stringify(entry.frame)).length;
  if (size > LARGEST) refused({code: "too_large", message_id: entry.id});
  else if (connection.live) connection.send(entry.frame);
  later();
}

function resend() {
  view.trouble(null);
  for (const entry of outbox.unsent) send(entry);
}

function edit(entry) {
  by("text").value = entry.text;
  fit();
  remove(entry);
}

function remove(entry) {
  outbox.drop((e) => e === entry);
  by("text").focus();
  later();
}

// Sessions and tokens

function begin() {
  kept.remove(SESSION);
  outbox.forget();
  follow(null);
}

function follow(other) {
  session = other;
  conversation.clear();
  if (other !== null) outbox.belongTo(other);
  connection.open();
  later();
}

function signIn(why, isFresh) {
  fresh = isFresh;
  if (!isFresh) own.remove("token");
  show(by("signin-why"), Boolean(why));
  put(by("signin-why"), why ?? "");
  by("signin").returnValue = "";
  if (!by("signin").open) by("signin").showModal();
  by("token").focus();
}

by("signin").addEventListener("close", () => {
  const token = by("signin").returnValue && by("token").value.trim();
  by("token").value = "";
  if (!token) return view.trouble(t("stopped"), () => connection.open());
  own.write("token", token);
  if (!(fresh && connection.send({type: "auth", token}))) connection.open();
});

onChange(SESSION, () => {
  const other = kept.read(SESSION);
  if (other === null || other === session) return;
  follow(other);
  view.announce([conversation.note("anew_begun")]);
});

// Messages from before a long chat's snapshot, page by page.
by("earlier").addEventListener("click", async () => {
  const whose = session;
  by("earlier").disabled = true;
  try {
    // A page may hold nothing that is shown: calls of tools, their results, messages without words.
    const shown = conversation.items.length;
    do {
      const page = await earlier();
      if (whose !== session) return;
      add(page);
    } while (conversation.earlier && before !== null && conversation.items.length === shown);
  } catch (error) {
    view.trouble(error.message);
  } finally {
    by("earlier").disabled = false;
    later();
  }
});

async function earlier() {
  const url = new URL(conversation.earlierUrl.slice(1), new URL(".", location.href));
  if (before !== null) url.searchParams.set("before", before);
  const token = own.read("token");
  const found = await fetch(url, {headers: token ? {Authorization: `Bearer ${token}`} : {}});
  const page = await found.json();
  if (page.code === "unknown_message") before = null;  // removed: from the end again
  if (!found.ok) throw new Error(page.detail);
  return page;
}

function add(page) {
  const place = document.querySelector("main"), below = place.scrollHeight - place.scrollTop;
  conversation.prepend(page.messages);
  conversation.earlier = page.earlier;
  before = page.before;
  render();
  place.scrollTop = place.scrollHeight - below;  // the reader stays where they were
}

// The form

by("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("text").value.trim();
  if (!text || by("send").disabled) return;
  say(text);
  by("text").value = "";
  fit();
});

by("text").addEventListener("keydown", (event) => {
  // Enter picks a word first, where those are composed of sounds or strokes.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  by("composer").requestSubmit();
});

by("text").addEventListener("input", fit);

function fit() {
  const box = by("text");
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, 160)}px`;
}

by("stop").addEventListener("click", () => connection.send({type: "cancel"}));
by("anew").addEventListener("click", () => { begin(); by("text").focus(); });
by("language").addEventListener("click", () => {
  kept.write("language", getLanguage() === "zh" ? "en" : "zh");
  speak();
});

function speak() {
  setLanguage(kept.read("language") ?? preferred(navigator.languages));
  view.words(graph);
  view.connection(link);
  later();
}

// Shown soon, and once for all that comes at once.
function later() {
  due ||= setTimeout(render, 16);
}

function render() {
  clearTimeout(due);
  due = 0;
  view.render(conversation, outbox, {graph, live: connection.live});
}

speak();
outbox.belongTo(session);
setInterval(() => { if (link.state === "waiting") view.connection(link); }, 500);
connection.open();
