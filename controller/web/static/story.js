// The time line of the open incident, or of the newest one; the newest entry first.

import { byId, el, keyed, setText } from "./dom.js";
import { clock, some } from "./format.js";

const SIGNS = { opened: "!", "node-lost": "✕", "queries-lost": "✕", plan: "▼", "queries-restored": "◐", "queries-caught-up": "●", "queries-behind": "◐", restored: "●", closed: "✓" };

export function story(doc) {
  const incident = doc.incident ?? doc.last_incident;
  byId("story-none").hidden = incident !== null;
  byId("events").hidden = incident === null;
  if (incident === null) return;
  setText(byId("story-title"), `Time line of ${incident.id}${doc.incident ? "" : ", closed"}`);
  const events = incident.events.map((event, index) => ({ ...event, key: `${incident.id} ${index} ${event.time} ${event.name}`, since: event.time - incident.opened_at }));
  keyed(byId("events"), events.reverse(), (event) => event.key, line, update);
}

const line = () => el("li", {}, el("span", { class: "sign", "aria-hidden": "true" }), el("time"), el("span", { class: "since" }), el("b"), el("span", { class: "what clamp" }));

/** Lists of queries are as long as the topology is wide. */
const detail = ({ name, detail }) => (name.startsWith("queries-") ? some(detail.split(" "), 14) : detail);

function update(node, event) {
  const [sign, time, since, name, what] = node.children;
  setText(sign, SIGNS[event.name] ?? "·");
  setText(time, clock(event.time));
  setText(since, `${event.since < 0 ? "−" : "+"}${Math.abs(event.since).toFixed(1)} s`);
  setText(name, event.name.replaceAll("-", " "));
  setText(what, detail(event));
}
