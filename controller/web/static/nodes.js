// The nodes: alive or lost, how full, in which failure domain, and what would be lost with each of these.

import { byId, el, keyed, setText } from "./dom.js";
import { count, cpu, nodeName, some } from "./format.js";
import { badge, setBadge } from "./shapes.js";

export function nodes(doc) {
  const domains = doc.failure_domains ?? null;
  keyed(byId("node-list"), doc.nodes, (node) => node.id, card, (item, node) => update(item, node, domains?.label));
  byId("domains").hidden = domains === null;
  if (domains === null) return;
  setText(byId("domains-said"), `Failure domains by ${domains.label}: of a priority of ${domains.priority}, ${domains.lost} would be lost with one of ${domains.items.length} on average.`);
  keyed(byId("domain-list"), domains.items, ({ value, nodes: [first] }) => value ?? `node ${first}`, () => el("li", {}, el("b"), el("span", { class: "small" })), updateDomain);
}

function updateDomain(item, { value, nodes, priority, lost }) {
  const [name, text] = item.children;
  setText(name, value ?? `${nodeName(nodes[0])}, domain not known`);
  const without = lost === priority ? "" : ` (${priority} without standbys)`;
  setText(text, `${count(nodes.length, "node")} (${some(nodes.map(nodeName), 8)}); ${lost} would be lost with it${without}`);
}

const card = (node) => el("li", {}, el("b"), badge(node.state), el("progress", { max: "1" }), el("span", { class: "small" }));

function update(item, node, label) {
  const [name, state, bar, text] = item.children;
  setText(name, nodeName(node.id));
  setBadge(state, node.state);
  bar.hidden = node.cpu === null;
  bar.value = node.cpu ? Math.min(1, node.used / node.cpu) : 0;
  bar.setAttribute("aria-label", `CPU used on ${node.id}`);
  const used = node.cpu === null ? "" : `, ${Math.round(node.used)} of ${cpu(node.cpu)}`;
  const slower = !node.slowdown ? "" : node.slowdown > 1 ? `; above the cap, so a batch takes about ${node.slowdown} times as long` : "; above the cap";
  const domain = label && node.cpu !== null ? `; ${label} ${node.labels[label] ?? "not known"}` : "";
  setText(text, node.cpu === null ? (node.partitions ? `${count(node.partitions, "partition")} not placed elsewhere yet` : "") : `${count(node.partitions, "partition")}${used}${slower}${domain}`);
}
