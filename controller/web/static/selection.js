// What is known of the partition or query that was selected.

import { byId, el, whenChanged } from "./dom.js";
import { bytes, count, cpu, lagOf, rate, some, watermarkOf } from "./format.js";
import { lacking, wished } from "./gaps.js";
import { queriesOf, reads } from "./needs.js";
import { badge } from "./shapes.js";

export function selection(doc, selected, select) {
  const box = byId("detail");
  const partition = doc.partitions.find((entry) => entry.id === selected?.partition);
  const query = doc.queries.items.find((entry) => entry.id === selected?.query);
  box.hidden = !partition && !query;
  const value = partition ?? (query ? [query, wished(doc, query)] : null);
  whenChanged(box, value, () => box.replaceChildren(...(partition ? ofPartition(partition, doc, select) : query ? ofQuery(query, doc, select) : [])));
}

function standbyOf(partition, doc) {
  const operator = doc.graph.operators.find((one) => one.name === partition.operator);
  if (!operator.standbys) return [];
  if (!partition.standby) return [["standby", "none is placed"]];
  const ready = partition.standby_position === null ? "not ready" : `at batch ${partition.standby_position}`;
  const label = operator.failure_domain;
  if (!label) return [["standby", `${partition.standby}, ${ready}`]];
  const domain = (id) => doc.nodes.find((node) => node.id === id)?.labels[label] ?? "not known";
  const apart = partition.standby_apart === null ? "nobody can say whether it is apart" : partition.standby_apart ? "apart" : "in the same failure domain";
  return [
    ["standby", `${partition.standby}, ${ready}`],
    [label, `${domain(partition.standby)}, of its partition ${domain(partition.node)}: ${apart}`],
  ];
}

function ofPartition(partition, doc, select) {
  const upstream = reads(doc, partition.id);
  const queries = queriesOf(doc, partition.id);
  const down = queries.filter((query) => query.state !== "available");
  return [
    head(`Partition ${partition.id}`, partition.state, select),
    partition.reason ? el("p", {}, partition.reason) : null,
    facts([
      ["position", partition.position === null ? "not at work" : `batch ${partition.position}, ${lagOf(partition)} behind`],
      ["node", partition.node ?? "none that is alive"],
      ["CPU", cpu(partition.cost)],
      ["throughput", partition.input_rows_s === null ? "not known" : `${rate(partition.input_rows_s)} rows/s`],
      ["watermark", watermarkOf(partition, doc.time)],
      ["checkpoint", partition.checkpoint === null ? "not known" : partition.checkpoint === 0 ? "none yet" : `batch ${partition.checkpoint}`],
      ...(partition.error ? [["error", partition.error]] : []),
      ["stored state", partition.state_bytes === null ? "not known yet" : bytes(partition.state_bytes)],
      ...standbyOf(partition, doc),
      ...(partition.backed === null ? [] : [["upstream backup", partition.backed ? "could be fed again" : "would come from a checkpoint"]]),
      ["reads", upstream.length ? links(upstream, "partition", select) : "its source"],
      ["queries that need it", `${queries.length}, of which ${down.length} not available${down.length ? `: ${some(down.map((query) => query.id), 6)}` : ""}`],
    ]),
  ].filter(Boolean);
}

// What is promised of an output, as the status document says it.
function promiseOf(id, doc) {
  const operator = doc.graph.operators.find((one) => one.partitions.includes(id));
  if (!operator?.guarantee && !operator?.limited_because) return [];
  const said = operator.guarantee ?? "precise, perhaps by checkpoint";
  return [["output", operator.limited_because ? `${said} (${operator.limited_because})` : said]];
}

function ofQuery(query, doc, select) {
  const wish = wished(doc, query);
  return [
    head(`Query ${query.id}`, query.state, select),
    query.reason ? el("p", {}, query.reason) : null,
    facts([
      ["priority", query.priority],
      ["lag", lagOf(query)],
      ...promiseOf(query.id, doc),
      ...(query.gaps.length ? [["gaps", `${lacking(query)}; each is marked where it is shown`]] : []),
      ...(wish ? [["asked for", wish]] : []),
      ["needs", `${count(query.partitions, "partition")}, outlined in the graph`],
      ["missing", query.missing.length ? links(query.missing, "partition", select, query.missing_total) : "none"],
    ]),
  ].filter(Boolean);
}

const head = (title, state, select) => el("div", { class: "bar" }, el("h3", {}, title), badge(state), el("button", { type: "button", onclick: () => select(null) }, "Close"));

const facts = (pairs) => el("dl", { class: "facts" }, ...pairs.flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value instanceof Node ? value : String(value))]));

function links(ids, kind, select, total = ids.length) {
  const shown = ids.slice(0, 12).map((id) => el("li", {}, el("button", { type: "button", class: "link", onclick: () => select({ [kind]: id }) }, id)));
  if (total > shown.length) shown.push(el("li", {}, `and ${total - shown.length} more`));
  return el("ul", { class: "inline" }, ...shown);
}
