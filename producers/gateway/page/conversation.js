// What the page knows of a conversation, made of the server's frames alone. No DOM here.
//
// items, in order: {key, kind: "said", id, role, text, streaming}
//                  {key, kind: "asked", id, question, state, chosen}
//                  {key, kind: "notice", code, text, bad}
// Each has `rev`, which grows when it changes. A question's state: open, sent, answered,
// expired, closed.

export function later(seq, than) {
  const [e1, n1] = seq.split("-").map(Number), [e2, n2] = than.split("-").map(Number);
  return e1 !== e2 ? e1 > e2 : n1 > n2;
}

export class Conversation {
  // ownWords(message_id): what this page has sent under that id, or undefined.
  constructor(ownWords) {
    this.ownWords = ownWords;
    this.busy = false;  // by the last welcome
    this.clear();
  }

  clear() {
    this.lastSeq = null;
    this.items = [];
    this.byKey = new Map();
    this.tools = new Map();
    this.phase = null;
    this.active = false;
    this.earlier = 0;
    this.earlierUrl = null;
    this.notices = 0;
    this.taken = new Set();  // ids of messages that a turn has begun with
  }

  get open() {
    return this.items.filter((i) => i.kind === "asked" && (i.state === "open" || i.state === "sent"));
  }

  // The question that plain words answer: the only one that is open, if it takes text.
  get textQuestion() {
    const open = this.open;
    return open.length === 1 && open[0].state === "open" && open[0].question.text ? open[0] : null;
  }

  // Take a frame of the server's; gives the items that are whole and new, to be read out.
  take(frame) {
    if (frame.type === "history_batch") return frame.snapshot ? this.#rebuild(frame) : this.#missed(frame);
    if (frame.seq !== undefined) {
      if (this.lastSeq !== null && !later(frame.seq, this.lastSeq)) return [];
      this.lastSeq = frame.seq;
    }
    const act = this[`_${frame.type}`];
    return act ? act.call(this, frame) ?? [] : [];
  }

  said(id) { return this.taken.has(id) || this.byKey.has(`said:${id}`); }

  sent(questionId, chosen) {
    this.#question(questionId, "sent", chosen);
  }

  settled(questionId, state) {
    this.#question(questionId, state);
  }

  // What this page has answered does not count.
  refused(questionId, state) {
    const item = this.byKey.get(`asked:${questionId}`);
    if (item) this.#change(item, {state, sent: false, chosen: null});
  }

  prepend(messages) {
    const before = this.items;
    const tools = this.tools;
    this.items = [];
    this.tools = new Map();
    for (const message of messages) if (!this.said(message.message_id)) this._message(message);
    this.items.push(...before);
    this.tools = tools;
  }

  #missed(batch) {
    const news = batch.events.flatMap((frame) => this.take(frame));
    if (batch.last_seq && (this.lastSeq === null || later(batch.last_seq, this.lastSeq))) this.lastSeq = batch.last_seq;
    return news;
  }

  #rebuild(batch) {
    const chosen = new Map(this.items.filter((i) => i.kind === "asked").map((i) => [i.id, i]));
    this.clear();
    this.lastSeq = batch.last_seq;
    this.earlier = batch.earlier ?? 0;
    this.earlierUrl = batch.earlier_url ?? null;
    // Accepted and not begun yet shows in the welcome only.
    this.active = batch.status === "running" || (this.busy && batch.status !== "done");
    for (const message of batch.messages) this._message(message);
    this.tools.clear();
    for (const {message_id, text} of batch.partial) this._token({message_id, text});
    for (const tool of batch.running_tools) this.tools.set(tool.id, tool);
    for (const question of batch.questions) {
      this._interrupt(question);
      const before = chosen.get(question.question_id);
      if (before?.state === "sent") this.sent(question.question_id, before.chosen);
    }
    if (!batch.questions.length) this.phase = text(batch.values?.phase);
    return this.items.slice(-1);
  }

  _token({message_id, text}) {
    const item = this.byKey.get(`said:${message_id}`);
    if (item) this.#change(item, {text: item.text + text, streaming: true});
    else this.#add({kind: "said", id: message_id, role: "assistant", text, streaming: true});
    this.active = true;
  }

  _message(message) {
    if (message.removed !== undefined) return void this.#remove(`said:${message.removed}`);
    const {message_id: id, role} = message;
    for (const call of message.tool_calls ?? []) this.tools.set(call.id, call);
    if (role === "tool") return void this.tools.delete(message.tool_call_id);
    const streamed = message.streamed_as && this.byKey.get(`said:${message.streamed_as}`);
    if (streamed && message.streamed_as !== id) this.#rename(streamed, id);
    if (role === "system" || !message.text) return void this.#remove(`said:${id}`);
    const item = this.byKey.get(`said:${id}`);
    const fresh = !item || item.streaming;
    if (item) this.#change(item, {role, text: message.text, streaming: false});
    else this.#add({kind: "said", id, role, text: message.text, streaming: false});
    return fresh && role === "assistant" ? [this.byKey.get(`said:${id}`)] : [];
  }

  // What is between them stays where it is.
  _order({ids}) {
    const place = new Map(ids.map((id, n) => [`said:${id}`, n]));
    const moved = this.items.filter((i) => place.has(i.key)).sort((a, b) => place.get(a.key) - place.get(b.key));
    this.items = this.items.map((i) => place.has(i.key) ? moved.shift() : i);
  }

  _interrupt(question) {
    const key = `asked:${question.question_id}`, before = this.byKey.get(key);
    this.phase = text(question.phase) ?? this.phase;
    if (before) {
      // Another was answered, or the deadline has moved; what this page has sent stays sent.
      const state = before.sent ? "sent" : "open";
      return void this.#change(before, {question, state});
    }
    this.#add({kind: "asked", id: question.question_id, question, state: "open", chosen: null});
    return [this.byKey.get(key)];
  }

  _complete() { this.#rest(); }

  _error(frame) {
    if (frame.seq === undefined) return;  // of what this page has sent: the outbox's business
    this.#rest();
    return [this.note(frame.code, frame.detail ?? frame.message, true)];
  }

  _event({event: {type, data}}) {
    const act = this[`_on_${type}`];
    return act ? act.call(this, data) : [];
  }

  _on_turn() {
    this.active = true;
    this.#close("answered");
  }

  _on_received({message_id, said_as, kind, content}) {
    this.active = true;
    const said = this.ownWords(message_id) ?? this.#words(kind, content);
    this.#close("answered");
    const id = said_as ?? message_id, known = this.said(id);
    this.taken.add(message_id);
    if (said && !known) this.#add({kind: "said", id, role: "user", text: said, streaming: false});
  }

  _on_step({ns, values}) {
    if (!ns && values) this.phase = text(values.phase) ?? this.phase;
  }

  _on_ended({outcome}) {
    if (outcome === "waiting" || outcome === "done") return this.#rest();
    if (outcome === "cancelled") { this.#rest(); this.#close("closed"); return [this.note("cancelled")]; }
    if (outcome === "retry") return [this.note("retry")];
    // released, drained: another worker goes on with it.
    if (["dead", "in_doubt", "incompatible", "refused"].includes(outcome)) {
      this.#rest();
      return [this.note(`turn_${outcome}`, null, true)];
    }
  }

  _on_status({reason, questions, question_id, expires_at, status}) {
    if (reason === "question_extended") {
      const item = this.byKey.get(`asked:${question_id}`);
      if (item) this.#change(item, {question: {...item.question, expires_at}});
    } else if (reason === "question_expired") {
      for (const id of questions ?? []) this.#question(id.question_id ?? id, "expired");
      return [this.note("question_expired")];
    } else if (reason === "cancelled") {
      this.#rest();
      this.#close("closed");
      return [this.note("cancelled")];
    } else if (reason === "dropped" || reason === "quarantined") {
      this.#rest();
      return [this.note(reason, null, true)];
    } else if (reason === "retried") {
      this.active = true;
    }
    if (status === "done" || status === "cancelled") this.#close("closed");
  }

  // What an answer that is data says to people, until the graph's own words for it come.
  #words(kind, content) {
    if (typeof content === "string" || content === undefined || content === null) return content ?? "";
    if (kind !== "answer") return "";
    const rooms = this.open.flatMap((i) => i.question.data?.candidates ?? []);
    const room = rooms.find((r) => r.id === content.room_id);
    return room?.name ?? content.text ?? JSON.stringify(content);
  }

  // Nothing is under way any more.
  #rest() {
    this.active = false;
    this.tools.clear();
    for (const item of this.items) if (item.streaming) this.#change(item, {streaming: false});
  }

  #close(state) {
    for (const item of this.open) this.#change(item, {state});
  }

  #question(id, state, chosen) {
    const item = this.byKey.get(`asked:${id}`);
    if (!item || (item.state === state && chosen === undefined)) return;
    this.#change(item, {state, sent: state === "sent" || (item.sent && state === "answered"), chosen: chosen ?? item.chosen});
  }

  // Something that the page itself tells.
  note(code, text = null, bad = false) {
    return this.#add({kind: "notice", id: `${++this.notices}`, code, text, bad});
  }

  #add(item) {
    item.key = `${item.kind}:${item.id}`;
    item.rev = 0;
    this.items.push(item);
    this.byKey.set(item.key, item);
    return item;
  }

  #change(item, fields) {
    Object.assign(item, fields);
    item.rev += 1;
  }

  #rename(item, id) {
    this.byKey.delete(item.key);
    this.#remove(`said:${id}`);
    item.id = id;
    item.key = `said:${id}`;
    this.byKey.set(item.key, item);
  }

  #remove(key) {
    if (this.byKey.delete(key)) this.items = this.items.filter((i) => i.key !== key);
  }
}

function text(value) {
  return typeof value === "string" && value ? value : null;
}
