// Keeps a document up to date: a stream says when there is a newer one; without a stream it is asked for every two seconds.
// The document itself is always fetched the same way, and one request is on its way at a time.  A page that nobody sees holds no
// stream: a browser has six connections to a server, and pages in other tabs, or left behind in its history, would keep them.

const POLL_MS = 2000;
const STREAM_AGAIN_MS = 10000;
const PATIENCE_MS = 10000; // a controller that does not answer for so long counts as away
export const OLD_S = 60; // nobody looks at a quiet topology less often than every half minute

/** `show(document)` for each newer one; `say(mode, words)` after each question: live, polling, missing, signed-out or away, with
    what the server says.  `asked(age)`: how many seconds old what was shown is, after each answer.  Lasts as long as the page. */
export function follow(url, stream, show, say, asked = () => {}) {
  let mode = "polling";
  let asking = false;
  let again = false;
  let tag = null;
  let closedAt = 0;
  let source = null;

  async function ask() {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
      if (answer.ok || answer.status === 304) asked(Number(answer.headers.get("Age") ?? 0));
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        show(await answer.json());
      }
      if (answer.ok || answer.status === 304) say(source?.readyState === EventSource.OPEN ? "live" : "polling", "");
      else say(REFUSALS[answer.status] ?? "away", answer.status === 503 ? (await answer.text()).trim() : "");
    } catch {
      say("away", "");
    } finally {
      asking = false;
      if (again) {
        again = false;
        ask();
      }
    }
  }

  function listen() {
    source = new EventSource(stream);
    source.addEventListener("open", () => (mode = "live"));
    source.addEventListener("news", ask);
    source.addEventListener("gone", ask);
    source.addEventListener("error", () => {
      mode = "polling";
      if (source.readyState === EventSource.CLOSED) closedAt = Date.now();
    });
  }

  function rest() {
    source?.close();
    source = null;
    mode = "polling";
  }

  function wake() {
    if (document.hidden || source) return;
    ask();
    if (stream) listen();
  }

  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => event.persisted && wake());
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : wake()));
  wake();
  setInterval(() => {
    if (document.hidden) return;
    if (mode !== "live" || source?.readyState !== EventSource.OPEN) ask();
    if (source?.readyState === EventSource.CLOSED && Date.now() - closedAt > STREAM_AGAIN_MS) listen();
  }, POLL_MS);
  // A stream is silent while nothing is new; whether somebody still looks is asked for besides.
  setInterval(() => document.hidden || ask(), (OLD_S * 1000) / 4);
}

const REFUSALS = { 404: "missing", 401: "signed-out" };
const WORDS = {
  live: "● live",
  polling: "◐ asking every 2 s",
  missing: "○ not looked after here",
  "signed-out": "✕ signed out",
  away: "✕ no answer",
};

/** How to say it, in an element with role status. */
export function saying(node) {
  return (mode) => {
    if (node.dataset.mode === mode) return;
    node.dataset.mode = mode;
    node.textContent = WORDS[mode];
  };
}
