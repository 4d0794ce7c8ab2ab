// The newest plan with the reason for each query, and the plans before it in one line each.

import { byId, el, setText, whenChanged } from "./dom.js";
import { clock, count, cpu, some } from "./format.js";
import { table } from "./table.js";

export function plan(doc) {
  const incident = doc.incident ?? doc.last_incident;
  const plans = incident?.plans ?? [];
  const newest = plans.at(-1);
  setText(byId("plan-title"), newest ? `Plan ${newest.id}` : "Plan");
  whenChanged(byId("plan-body"), plans, () => byId("plan-body").replaceChildren(...(newest ? [...body(newest), ...earlier(plans.slice(0, -1))] : [el("p", {}, "There is no plan.")])));
}

function body(record) {
  const proof = record.bound === null ? "The record does not say how good it is." : record.optimal
    ? `Worth ${record.value}: proven to be the best for this capacity.`
    : `Worth ${record.value}; no plan for this capacity is worth more than ${record.bound}.`;
  const restored = Object.keys(record.added).length;
  return [
    el("p", {}, `${clock(record.time)}: ${record.summary}`),
    el("p", { class: "small" }, `${proof} ${record.algorithm ?? "unknown planner"}${record.why ? ` (${record.why})` : ""}, ${(record.seconds * 1000).toFixed(1)} ms. `,
      `Restores ${count(restored, "partition")} from checkpoint ${record.checkpoint}${record.rollback ? ", after a rollback of everything" : ""}; ${record.at_work} at work. ${record.note}`),
    chosen(record.chosen),
    leftOut(record.left_out),
    free(record.free),
  ].filter(Boolean);
}

function chosen(entries) {
  if (!entries.length) return el("p", {}, "No further query fits.");
  return table("Brings back, in this order", ["query", "priority", "CPU", "restores"], entries.map((entry) => [entry.query, entry.priority, cpu(entry.cost), some(entry.restores)]), [1, 2]);
}

function leftOut(entries) {
  if (!entries.length) return null;
  const when = (entry) => (entry.enters_at === null ? "" : `${entry.entry_exact ? "" : "about "}${cpu(Math.ceil(entry.enters_at))} free`);
  return table("Leaves out, the most valuable first", ["query", "priority", "why", "comes in at"], entries.map((entry) => [entry.query, entry.priority, entry.reason, when(entry)]), [1]);
}

function free(nodes) {
  const entries = Object.entries(nodes);
  if (!entries.length) return null;
  return el("p", { class: "small" }, `Free CPU under the cap before it: ${entries.map(([node, milli]) => `${node} ${cpu(milli)}`).join(", ")}.`);
}

function earlier(plans) {
  if (!plans.length) return [];
  const lines = plans.toReversed().map((record) => el("li", {}, el("span", {}, `${clock(record.time)} ${record.id}: ${record.summary}`)));
  return [el("details", {}, el("summary", {}, `${count(plans.length, "plan")} before it`), el("ol", { reversed: true }, ...lines))];
}
