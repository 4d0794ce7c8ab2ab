// What is down, what comes next, when and why: two sentences and a handful of numbers.

import { byId, el, keyed, setText } from "./dom.js";
import { byNumber, bytes, count, percent, some, span } from "./format.js";

export function situation(doc, now) {
  setText(byId("headline"), headline(doc));
  setText(byId("next"), next(doc));
  const problems = doc.problems;
  byId("problems").hidden = problems.length === 0;
  keyed(byId("problems"), problems, (text) => text, () => el("li"), setText);
  keyed(byId("figures"), figures(doc, now), ([title]) => title, figure, updateFigure);
}

function headline({ connected, phase, incident, queries }) {
  const before = connected ? "" : "ZooKeeper does not answer; this is what was known last. ";
  const available = `${queries.available} of ${count(queries.total, "query")} available`;
  if (phase === "starting") return `${before}The topology is starting.`;
  if (!incident) return `${before}${available}${phase === "steady" ? ", no incident is open." : `; the topology is ${phase}.`}`;
  const lost = [...new Set(incident.lost.map((entry) => entry.node.replace(/#1$/, "")))].sort(byNumber);
  const cause = lost.length ? `: ${count(lost.length, "node")} lost (${some(lost, 8)})` : "";
  const kind = `${incident.kind[0].toUpperCase()}${incident.kind.slice(1)} incident ${incident.id}`;
  return `${before}${kind}, ${incident.phase}${cause}. ${available}.`;
}

/** The most valuable query that is not there yet, and what it waits for. */
function next({ incident, queries, plan }) {
  if (!incident) return "";
  const coming = queries.items.filter((query) => query.state === "recovering");
  const waiting = queries.items.filter((query) => query.state === "waiting");
  const parts = [];
  if (coming.length) parts.push(`Coming back now: ${some(coming.map((query) => `${query.id} (priority ${query.priority})`), 3)}.`);
  if (waiting.length) {
    const [first] = waiting;
    const entry = plan?.left_out.find((left) => left.query === first.id);
    const at = entry?.enters_at ? ` It comes in at ${Math.ceil(entry.enters_at)} m of free CPU.` : "";
    parts.push(`Next: ${first.id} (priority ${first.priority}), ${first.reason}.${at}`);
  }
  if (!parts.length && incident.phase === "verifying") parts.push("Everything is back; a global checkpoint closes the incident.");
  return parts.join(" ");
}

function figures({ queries, availability, incident, nodes, checkpoint, batch, buffers, partitions, counters = [] }, now) {
  const bound = availability.points.at(-1)?.bound;
  const lost = nodes.filter((node) => node.state === "lost").length;
  const late = counters.filter(({ name, value }) => name === "late_rows" && value);
  const stored = partitions.reduce((sum, partition) => sum + (partition.state_bytes ?? 0), 0);
  const kept = (buffers.memory ?? 0) + (buffers.disk ?? 0);
  return [
    ["available by priority", percent(queries.share), `${queries.priority_available} of ${queries.priority_total}`],
    ["capacity allows", incident && bound !== null && bound !== undefined ? percent(bound) : incident ? "not planned yet" : "everything", "at most, by priority"],
    ["recovering / waiting", `${queries.recovering} / ${queries.waiting}`, "queries"],
    ["nodes", `${nodes.length - lost} alive`, lost ? `${lost} lost` : "none lost"],
    ["incident open", incident ? span(now - incident.opened_at) : "none", incident ? `from checkpoint ${incident.checkpoint}` : ""],
    ["batch", String(batch), checkpoint ? `checkpoint ${checkpoint.newest}, ${checkpoint.age_batches} behind${checkpoint.enabled ? "" : ", off now"}` : ""],
    ["state stored", bytes(stored), "newest of every partition"],
    ["late rows", String(late.reduce((sum, { value }) => sum + value, 0)), late.length ? `dropped by ${some(late.map(({ operator }) => operator), 3)}` : "none dropped"],
    ["kept for replay", bytes(kept), buffers.disk ? `${bytes(buffers.disk)} of it on disk` : ""],
  ];
}

const figure = ([title]) => el("div", { class: "figure" }, el("dt", {}, title), el("dd"), el("dd", { class: "small" }));

function updateFigure(node, [, value, small]) {
  setText(node.children[1], value);
  setText(node.children[2], small);
}
