// The list of all topologies that the controller looks after.

import { byId, el, keyed, setText } from "./dom.js";
import { clock, percent } from "./format.js";
import { follow, saying } from "./live.js";
import { badge, setBadge } from "./shapes.js";
import { theme } from "./theme.js";

const worst = (queries) => (queries.waiting ? "waiting" : queries.recovering ? "recovering" : "available");

function row(item) {
  const link = el("a", { href: `t/${encodeURIComponent(item.namespace)}/${encodeURIComponent(item.name)}` }, item.name);
  const cells = ["namespace", "phase", "number", "number", "incident", "number"].map((kind) => el("td", { class: kind }));
  cells[1].append(badge("available"));
  return el("tr", {}, el("th", { scope: "row" }, link), ...cells);
}

function update(line, item) {
  const [, namespace, phase, available, share, incident, batch] = line.children;
  const { queries } = item;
  setText(namespace, item.namespace);
  setBadge(phase.firstChild, worst(queries), item.connected ? item.phase : `${item.phase}, ZooKeeper does not answer`);
  setText(available, `${queries.available} of ${queries.total}`);
  setText(share, percent(queries.share));
  setText(incident, item.incident ? `${item.incident.kind}, ${item.incident.phase}, since ${clock(item.incident.opened_at)}` : "none");
  setText(batch, item.batch);
}

theme(byId("theme"));
follow("api/v1/topologies", null, ({ items }) => {
  byId("none").hidden = items.length > 0;
  byId("all").hidden = items.length === 0;
  keyed(byId("rows"), items, (item) => `${item.namespace}/${item.name}`, row, update);
}, saying(byId("live")));
