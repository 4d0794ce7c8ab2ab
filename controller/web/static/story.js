// The time line of the open incident, or of the newest one, with the nodes that came and what their starts took; the newest
// entry first.

import { byId, el, keyed, setText, whenChanged } from "./dom.js";
import { clock, nodeName, some } from "./format.js";

const SIGNS = { opened: "!", "node-lost": "✕", "queries-lost": "✕", plan: "▼", "queries-restored": "◐", "queries-caught-up": "●", "queries-behind": "◐", restored: "●", closed: "✓", "node-started": "▲" };
const PHASES = ["requested", "agent", "heartbeat", "executor", "task", "host", "ready", "planned", "work"];

export function story(doc) {
  const incident = doc.incident ?? doc.last_incident;
  byId("story-none").hidden = incident !== null;
  byId("events").hidden = incident === null;
  if (incident === null) return;
  setText(byId("story-title"), `Time line of ${incident.id}${doc.incident ? "" : ", closed"}`);
  const told = incident.events.map((event, index) => ({ ...event, key: `${incident.id} ${index} ${event.time} ${event.name}` }));
  const events = [...told, ...arrivals(incident)].map((event) => ({ ...event, since: event.time - incident.opened_at }));
  events.sort((one, other) => one.time - other.time);
  keyed(byId("events"), events.reverse(), (event) => event.key, line, update);
}

/** A node that came, at the end of the last phase of its start that somebody has seen. */
function arrivals(incident) {
  return incident.starts.map((start) => {
    const known = PHASES.filter((phase) => start.ended[phase] !== undefined).map((phase) => ({ phase, at: start.ended[phase] })).sort((one, other) => one.at - other.at);
    const from = known[0]?.at ?? incident.opened_at;
    const steps = known.slice(1).map(({ phase, at }, index) => ({ phase, took: Math.max(0, at - known[index].at), at: at - from }));
    return { time: known.at(-1)?.at ?? incident.opened_at, name: "node-started", key: `${incident.id} start ${start.node}`, node: nodeName(start.node), begins: known[0]?.phase, steps };
  });
}

const line = () => el("li", {}, el("span", { class: "sign", "aria-hidden": "true" }), el("time"), el("span", { class: "since" }), el("b"), el("div", { class: "what" }));

/** Lists of queries are as long as the topology is wide. */
const detail = ({ name, detail }) => (name.startsWith("queries-") ? some(detail.split(" "), 14) : detail);

function update(node, event) {
  const [sign, time, since, name, what] = node.children;
  setText(sign, SIGNS[event.name] ?? "·");
  setText(time, clock(event.time));
  setText(since, `${event.since < 0 ? "−" : "+"}${Math.abs(event.since).toFixed(1)} s`);
  setText(name, event.name.replaceAll("-", " "));
  if (event.steps) whenChanged(what, event.steps, () => what.replaceChildren(...start(event)));
  else setText(what, detail(event));
}

/** A bar of the phases in proportion, and the same in words: when each was over, from the first one that is known. */
function start({ node, begins, steps }) {
  const total = steps.at(-1)?.at ?? 0;
  const words = steps.map(({ phase, at }) => `${phase} +${at.toFixed(1)} s`);
  const head = steps.length ? `${node}, in ${total.toFixed(1)} s from ${begins}: ` : `${node}: nobody has seen how it started`;
  if (!steps.length) return [el("span", {}, head)];
  const parts = steps.map(({ phase, took }) => {
    const part = el("span", { class: "start-phase", "data-phase": phase });
    part.style.flexGrow = String(Math.max(took, total / 200));
    return part;
  });
  return [el("span", {}, head + words.join(", ")), el("span", { class: "phases", "aria-hidden": "true" }, ...parts)];
}
