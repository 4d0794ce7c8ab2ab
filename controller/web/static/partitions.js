// Every partition in numbers: how far it is, what it does a second, what is stored of it, and what failed on it.

import { byId, cell, el, keyed, setAttribute, setText } from "./dom.js";
import { bytes, lagOf, rate, watermarkOf } from "./format.js";
import { badge, setBadge } from "./shapes.js";

const FIRST = 60;
let all = false;

export function partitions(doc, selected, select) {
  const filter = byId("partition-filter").value;
  const wanted = doc.partitions.filter((partition) => !filter || partition.state !== "running" || partition.error);
  let items = wanted;
  if (!all && wanted.length > FIRST) {
    const troubled = (partition) => partition.state !== "running" || partition.error;
    items = [...wanted.filter(troubled), ...wanted.filter((partition) => !troubled(partition))].slice(0, FIRST);
  }
  keyed(byId("partition-rows"), items, (partition) => partition.id, (partition) => row(partition, select), (line, partition) => update(line, partition, doc, selected));
  const more = byId("more-partitions");
  more.hidden = items.length === wanted.length;
  setText(more, `Show all ${wanted.length}`);
  byId("no-partitions").hidden = items.length > 0;
}

export function wirePartitions(redraw) {
  byId("partition-filter").addEventListener("change", redraw);
  byId("more-partitions").addEventListener("click", () => {
    all = true;
    redraw();
  });
}

function row(partition, select) {
  const button = el("button", { type: "button", class: "link", onclick: () => select({ partition: partition.id }) }, partition.id);
  return el("tr", { role: "row" },
    el("th", { scope: "row", role: "rowheader", class: "name" }, button),
    cell("state", {}, badge(partition.state)),
    cell("node", { class: "name" }),
    cell("batch", { class: "number" }),
    cell("lag", { class: "number lag" }),
    cell("rows/s", { class: "number" }),
    cell("watermark", { class: "number" }),
    cell("checkpoint", { class: "number" }),
    cell("state size", { class: "number" }),
    cell("error", { class: "why" }));
}

function update(line, partition, doc, selected) {
  const [head, state, node, position, lag, rows, watermark, checkpoint, stored, error] = line.children;
  setAttribute(head.firstChild, "aria-pressed", selected?.partition === partition.id);
  setAttribute(line, "data-state", partition.state);
  setBadge(state.firstChild, partition.state);
  setText(node, partition.node ?? "–");
  setText(position, partition.position ?? "–");
  setText(lag, lagOf(partition));
  setText(rows, rate(partition.input_rows_s));
  setText(watermark, watermarkOf(partition, doc.time));
  setText(checkpoint, partition.checkpoint === null ? "–" : partition.checkpoint === 0 ? "none yet" : `batch ${partition.checkpoint}`);
  setText(stored, partition.state_bytes === null ? "–" : bytes(partition.state_bytes));
  setText(error, partition.error ?? (partition.waits_for ? `waits for its ${partition.waits_for}` : partition.state === "running" ? "" : partition.reason));
}
