// localStorage or sessionStorage as JSON under names of our own; a browser that has neither
// (or says that it is full) keeps things for as long as the page is open.

export class Stored {
  #memory = new Map();

  constructor(kind) { this.kind = kind; }

  read(name, otherwise = null) {
    try {
      const found = globalThis[this.kind].getItem(`fleet.${name}`);
      if (found !== null) return JSON.parse(found);
    } catch { /* not to be read */ }
    return this.#memory.get(name) ?? otherwise;
  }

  write(name, value) {
    try {
      globalThis[this.kind].setItem(`fleet.${name}`, JSON.stringify(value));
      this.#memory.delete(name);
    } catch { this.#memory.set(name, value); }
  }

  remove(name) {
    this.#memory.delete(name);
    try { globalThis[this.kind].removeItem(`fleet.${name}`); } catch { /* there is none */ }
  }
}

// Calls back when another tab has changed the value of this name.
export function onChange(name, act) {
  addEventListener("storage", ({key}) => { if (key === `fleet.${name}` || key === null) act(); });
}
