// Keeps a document up to date: a stream says when there is a newer one; without a stream it is asked for every two seconds.
// The document itself is always fetched the same way, and one request is on its way at a time.  A page that nobody sees holds no
// stream: a browser has six connections to a server, and pages in other tabs, or left behind in its history, would keep them.

const POLL_MS = 2000;
const STREAM_AGAIN_MS = 10000;

/** `show(document)` for each newer one; `say(mode)` with live, polling, missing or away. Returns nothing; lasts as long as the page. */
export function follow(url, stream, show, say) {
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
      const answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        show(await answer.json());
      }
      if (answer.ok || answer.status === 304) say(source?.readyState === EventSource.OPEN ? "live" : "polling");
      else say(answer.status === 404 ? "missing" : "away");
    } catch {
      say("away");
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
    if (mode !== "live") ask();
    if (source?.readyState === EventSource.CLOSED && Date.now() - closedAt > STREAM_AGAIN_MS) listen();
  }, POLL_MS);
}

const WORDS = {
  live: "● live",
  polling: "◐ asking every 2 s",
  missing: "✕ not looked after here (yet)",
  away: "✕ the controller does not answer: old state",
};

/** How to say it, in an element with role status. */
export function saying(node) {
  return (mode) => {
    if (node.dataset.mode === mode) return;
    node.dataset.mode = mode;
    node.textContent = WORDS[mode];
  };
}
