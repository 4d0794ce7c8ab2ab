// The nodes: alive or lost, and how full.

import { byId, el, keyed, setText } from "./dom.js";
import { count, cpu } from "./format.js";
import { badge, setBadge } from "./shapes.js";

export function nodes(doc) {
  keyed(byId("node-list"), doc.nodes, (node) => node.id, card, update);
}

const card = (node) => el("li", {}, el("b"), badge(node.state), el("progress", { max: "1" }), el("span", { class: "small" }));

function update(item, node) {
  const [name, state, bar, text] = item.children;
  setText(name, node.id.replace(/#1$/, ""));
  setBadge(state, node.state);
  bar.hidden = node.cpu === null;
  bar.value = node.cpu ? Math.min(1, node.used / node.cpu) : 0;
  bar.setAttribute("aria-label", `CPU used on ${node.id}`);
  const used = node.cpu === null ? "" : `, ${Math.round(node.used)} of ${cpu(node.cpu)} CPU`;
  setText(text, node.cpu === null ? (node.partitions ? `${count(node.partitions, "partition")} not placed elsewhere yet` : "") : `${count(node.partitions, "partition")}${used}`);
}
