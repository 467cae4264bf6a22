// The stream of states from the server: the newest values, their age, and whether they are stale.
// STALE if no state has arrived for STALE_MS, or if states arrive that late; checked every LOOK_MS.

// A connection without any event is closed after DEAD_MS. The server sends at least five events a second, and after this
// computer or a tunnel has slept, nothing else shows that the connection is lost.
const STALE_MS = 700, LOOK_MS = 100, AGAIN_MS = 1000, DEAD_MS = 5000, DRAW_MS = 333;
const DRIFT = 2e-4; // largest relative drift between two clocks

export const known = {
  points: new Map(), pointKinds: new Map(), events: [], about: null, mesh: null, paths: [], circuits: [],
  recovery: null, job: null, lease: null, health: null, headline: [0, ""], fabric: null, joined: null, alignments: {},
};
export const stream = { number: 0, missed: 0, gaps: 0, timeS: 0, word: "WAITING", why: "", rate: 0 };

const listeners = [];
let source = null, begunMs = 0, arrivedMs = -Infinity, heardMs = -Infinity, offsetMs = null, offsetAtMs = 0, lagMs = 0;
let dirty = new Set(), timer = null, count = 0, countedMs = 0, isFirst = true, startedS = 0;

/** Call `listener` with the set of the names of parts that have changed, a few times a second. */
export function onChange(listener) { listeners.push(listener); }

/** Return the estimated present server time, in seconds since 1970. */
export function serverNow() { return stream.timeS + (performance.now() - arrivedMs) / 1000; }

export const isStale = () => stream.word !== "LIVE";

// A frame costs the browser more than the drawing: parts are drawn a few times a second, only the word LIVE at once.
function soon() {
  if (dirty.has("live")) { clearTimeout(timer); draw(); } else if (timer === null) timer = setTimeout(draw, DRAW_MS);
}

function draw() {
  timer = null;
  const changed = dirty;
  dirty = new Set();
  for (const listener of listeners) listener(changed);
}

function take(message) {
  const now = performance.now();
  heardMs = arrivedMs = now;
  measureLag(message.up_s, now);
  const parts = message.parts;
  if (isFirst) {
    const begun = parts.health ? parts.health.started_s : 0;
    if (stream.number && begun === startedS && message.number > stream.number + 1) {
      stream.gaps += 1;
      stream.missed += message.number - stream.number - 1;
    }
    startedS = begun;
    known.points.clear(); known.pointKinds.clear(); known.events = []; known.paths = [];
    isFirst = false;
  } else if (message.previous !== stream.number) {
    stream.gaps += 1;
  } else {
    stream.missed += message.number - message.previous - 1;
  }
  stream.number = message.number;
  stream.timeS = message.time_s;
  count += 1;
  for (const [name, part] of Object.entries(parts)) {
    if (name === "points") for (const [point, value] of Object.entries(part)) {
      if (value === null) known.points.delete(point); else known.points.set(point, value);
    } else if (name === "point_kinds") for (const [point, value] of Object.entries(part)) known.pointKinds.set(point, value);
    else if (name === "events") known.events = known.events.concat(part).slice(-200);
    else known[name] = part;
    dirty.add(name);
  }
  dirty.add("number");
  look();
  soon();
}

// Delay of this message compared with the fastest one, corrected for clock drift.
function measureLag(upS, now) {
  const offset = upS * 1000 - now;
  offsetMs = offsetMs === null ? offset : Math.max(offset, offsetMs - DRIFT * (now - offsetAtMs));
  offsetAtMs = now;
  lagMs = offsetMs - offset;
}

function look() {
  const now = performance.now();
  let word = "LIVE", why = "";
  if (stream.number === 0) { word = "WAITING"; why = "for the first state"; }
  else if (now - heardMs > STALE_MS) { word = "STALE"; why = `nothing heard for ${((now - heardMs) / 1000).toFixed(1)} s`; }
  else if (now - arrivedMs > STALE_MS) { word = "STALE"; why = `no new state for ${((now - arrivedMs) / 1000).toFixed(1)} s`; }
  else if (lagMs > STALE_MS) { word = "STALE"; why = `states arrive ${(lagMs / 1000).toFixed(1)} s late`; }
  if (document.hidden) { word = "STALE"; why = "paused while nobody sees this page"; }
  else if (source !== null && now - Math.max(heardMs, begunMs) > DEAD_MS) connect();
  if (now - countedMs >= 1000) {
    stream.rate = count * 1000 / (now - countedMs);
    count = 0; countedMs = now;
    dirty.add("rate"); soon();
  }
  if (word !== stream.word || why !== stream.why) {
    if (word !== stream.word) dirty.add("live");
    stream.word = word; stream.why = why;
    dirty.add("why"); soon();
  }
}

function connect() {
  if (source !== null) source.close();
  isFirst = true; offsetMs = null; lagMs = 0; begunMs = performance.now();
  source = new EventSource("/events");
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onopen = () => { isFirst = true; };
  source.addEventListener("beat", (event) => {
    heardMs = performance.now();
    measureLag(JSON.parse(event.data).up_s, heardMs);
  });
  source.onerror = () => {
    isFirst = true; offsetMs = null; lagMs = 0;
    if (source !== null && source.readyState === EventSource.CLOSED) setTimeout(() => { if (!document.hidden) connect(); }, AGAIN_MS);
  };
}

// A browser opens six connections per server, so hidden pages close theirs.
function followVisibility() {
  if (document.hidden) { if (source !== null) source.close(); source = null; } else if (source === null) connect();
  look();
}

export function begin() {
  document.addEventListener("visibilitychange", followVisibility);
  setInterval(look, LOOK_MS);
  if (!document.hidden) connect();
}
