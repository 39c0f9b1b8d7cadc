// One WebSocket that comes back by itself. It knows nothing of chats.
//
// States: connecting, live, waiting (with `until`, ms), offline (waiting too, and the browser
// says that there is no network), stopped (only `open` begins again).

const FIRST_WAIT = 500, LONGEST_WAIT = 30_000, STEADY = 5_000;
const OPEN_WITHIN = 10_000, PING_EVERY = 20_000, PONG_WITHIN = 8_000, SOON = 3_000;
const NO_REASON_TO_COME_BACK = new Set([1008, 4401]);

export class Connection {
  #socket = null; #timers = {}; #tries = 0; #live = false; #stopped = true;

  // init() gives the first frame; heard(frame) takes each one; changed({state, until});
  // over(code, reason) hears of an end after which coming back would not help.
  constructor({address, init, heard, changed, over}) {
    Object.assign(this, {address, init, heard, changed, over});
    // A tab that slept, or a network that changed, has a socket that may be dead.
    addEventListener("online", () => this.look());
    addEventListener("offline", () => this.look());
    addEventListener("pageshow", () => this.look());
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
  }

  get live() { return this.#live; }

  open() {
    this.#drop();
    this.#stopped = false;
    this.#tell("connecting");
    const socket = this.#socket = new WebSocket(this.address);
    this.#after("open", OPEN_WITHIN, () => this.#lost());
    socket.onopen = () => socket.send(JSON.stringify(this.init()));
    socket.onmessage = ({data}) => this.#take(JSON.parse(data));
    socket.onclose = ({code, reason}) => this.#closed(code, reason);
  }

  stop() {
    this.#stopped = true;
    this.#drop();
    this.#tell("stopped");
  }

  send(frame) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  // Find out now whether it is there.
  look() {
    if (this.#stopped) return;
    if (this.#live) this.#ping(SOON);
    else if (navigator.onLine && !this.#socket) this.open();
    else if (!this.#socket) this.#tell("offline");
  }

  #take(frame) {
    this.#clear("pong");
    if (frame.type === "welcome") {
      this.#clear("open");
      this.#live = true;
      this.#tell("live");
      // Who is let in and thrown out at once waits longer each time all the same.
      this.#after("steady", STEADY, () => { this.#tries = 0; });
      this.#pings();
    } else if (!this.#live) {
      this.#clear("open");  // it speaks; a sign-in may take its time
    }
    if (frame.type !== "pong") this.heard(frame);
  }

  #pings() {
    this.#after("ping", PING_EVERY, () => { this.#ping(PONG_WITHIN); this.#pings(); });
  }

  #ping(within) {
    this.send({type: "ping"});
    this.#after("pong", within, () => this.#lost());
  }

  #closed(code, reason) {
    if (!NO_REASON_TO_COME_BACK.has(code)) return this.#lost();
    this.stop();
    this.over(code, reason);
  }

  #lost() {
    this.#drop();
    if (this.#stopped) return;
    const most = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.#tries++);
    const wait = most * (0.5 + Math.random() / 2);  // not all pages in the same moment
    this.#after("again", wait, () => this.open());
    this.#tell(navigator.onLine ? "waiting" : "offline", Date.now() + wait);
  }

  // Let go of the socket without waiting for the other side to agree.
  #drop() {
    Object.keys(this.#timers).forEach((name) => this.#clear(name));
    this.#live = false;
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #tell(state, until = null) {
    this.changed({state, until});
  }

  #after(name, ms, act) {
    this.#clear(name);
    this.#timers[name] = setTimeout(act, ms);
  }

  #clear(name) {
    clearTimeout(this.#timers[name]);
    delete this.#timers[name];
  }
}
