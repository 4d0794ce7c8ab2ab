// The queries, the most valuable first, with the reason of those that are not there.

import { byId, cell, el, keyed, setAttribute, setText } from "./dom.js";
import { lagOf } from "./format.js";
import { why as whyOf } from "./gaps.js";
import { badge, setBadge } from "./shapes.js";

const FIRST = 60;
let all = false;

export function queries(doc, selected, select) {
  const filter = byId("query-filter").value;
  let items = doc.queries.items.filter((query) => !filter || query.state !== "available");
  const total = items.length;
  if (!all && total > FIRST) {
    // those that are down are never among the hidden ones
    items = [...items.filter((query) => query.state !== "available"), ...items.filter((query) => query.state === "available")].slice(0, FIRST);
  }
  keyed(byId("query-rows"), items, (query) => query.id, (query) => row(query, select), (line, query) => update(line, query, doc, selected));
  const more = byId("more-queries");
  more.hidden = items.length === total;
  setText(more, `Show all ${total}`);
}

export function wireQueries(redraw) {
  byId("query-filter").addEventListener("change", redraw);
  byId("more-queries").addEventListener("click", () => {
    all = true;
    redraw();
  });
}

function row(query, select) {
  const button = el("button", { type: "button", class: "link", onclick: () => select({ query: query.id }) }, query.id);
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", class: "name" }, button), cell("state", {}, badge(query.state)), cell("priority", { class: "number" }), cell("lag", { class: "number lag" }), cell("why", { class: "why" }));
}

function update(line, query, doc, selected) {
  const [head, state, priority, lag, why] = line.children;
  setAttribute(head.firstChild, "aria-pressed", selected?.query === query.id);
  setAttribute(line, "data-state", query.state);
  setBadge(state.firstChild, query.state);
  setText(priority, query.priority);
  setText(lag, lagOf(query));
  whyOf(why, query.reason, doc, query);
}
