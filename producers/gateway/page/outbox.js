// What this tab has said and the server has not shown yet. It outlives a reload, and is sent
// again under its own message_id until it is acknowledged, so it counts once.
//
// Entries: {id, frame, text, state: "waiting" | "acked" | "refused", code?, why?}

export class Outbox {
  #session = undefined;

  constructor(storage) {
    this.storage = storage;
    this.entries = [];
  }

  // Of which session; null: of one that is still to be opened. What was said before there
  // was one goes with it.
  belongTo(session) {
    if (session === this.#session) return;
    const moving = this.#session === null ? this.entries : [];
    if (this.#session === null) this.storage.remove(this.#name());
    this.#session = session;
    this.entries = [...this.storage.read(this.#name(), []), ...moving];
    this.#keep();
  }

  // Whoever begins anew leaves it.
  forget() {
    this.storage.remove(this.#name());
    this.entries = [];
    this.#session = null;
  }

  put(frame, text) {
    const id = newId();
    const entry = {id, frame: {...frame, message_id: id}, text, state: "waiting"};
    this.entries.push(entry);
    this.#keep();
    return entry;
  }

  find(id) { return this.entries.find((entry) => entry.id === id); }

  get unsent() { return this.entries.filter((entry) => entry.state === "waiting"); }

  mark(id, state, more = {}) {
    const entry = this.find(id);
    if (entry) Object.assign(entry, {state, ...more});
    this.#keep();
    return entry;
  }

  drop(test) {
    const left = this.entries.filter((entry) => !test(entry));
    if (left.length === this.entries.length) return;
    this.entries = left;
    this.#keep();
  }

  #name() { return `outbox:${this.#session ?? "new"}`; }

  #keep() {
    if (this.entries.length) this.storage.write(this.#name(), this.entries);
    else this.storage.remove(this.#name());
  }
}

// A UUID; crypto.randomUUID is not there on pages without TLS.
function newId() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
