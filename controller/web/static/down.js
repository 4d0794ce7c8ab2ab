// Who is down and why, in the order in which it comes back: above everything that needs a second look.

import { byId, cell, el, keyed, setAttribute, setText } from "./dom.js";
import { count, expectation, lagOf, span } from "./format.js";
import { why as whyOf } from "./gaps.js";
import { badge, setBadge } from "./shapes.js";

export function down(doc, upcoming, now, select, selected) {
  const box = byId("down");
  const queries = new Map(doc.queries.items.map((query) => [query.id, query]));
  const lines = doc.phase === "starting" ? [] : upcoming.map((entry, index) => ({ ...entry, place: index + 1, ...pick(queries.get(entry.query)) }));
  box.hidden = lines.length === 0;
  const total = doc.queries.total - doc.queries.available;
  setText(byId("down-title"), `Down: ${count(total, "query")}, the next one first`);
  keyed(byId("down-rows"), lines, (line) => line.query, (line) => row(line, select), (node, line) => update(node, line, doc, now, selected));
  byId("down-more").hidden = total <= lines.length;
  setText(byId("down-more"), `and ${total - lines.length} more, in the table of queries below`);
}

const pick = (query) => ({ asked: query, priority: query?.priority, state: query?.state, lag: query?.lag, lag_s: query?.lag_s, since: query?.lost_at ?? query?.stalled_since });

function row(line, select) {
  const button = el("button", { type: "button", class: "link", onclick: () => select({ query: line.query }) }, line.query);
  return el("tr", { role: "row" },
    cell("next", { class: "number place" }),
    el("th", { scope: "row", role: "rowheader", class: "name" }, button),
    cell("priority", { class: "number" }),
    cell("state", {}, badge(line.state)),
    cell("down for", { class: "number" }),
    cell("back", { class: "back" }, el("span"), el("span", { class: "small" })),
    cell("lag", { class: "number lag" }),
    cell("why", { class: "why" }));
}

function update(node, line, doc, now, selected) {
  const [place, head, priority, state, since, back, lag, why] = node.children;
  setText(place, line.place);
  setAttribute(head.firstChild, "aria-pressed", selected?.query === line.query);
  setText(priority, line.priority);
  setBadge(state.firstChild, line.state);
  setText(since, line.since ? span(now - line.since) : "–");
  const [when, basis] = expectation(line, now - doc.time, doc.time);
  setText(back.firstChild, when);
  setText(back.lastChild, basis);
  setText(lag, lagOf(line));
  whyOf(why, line.waits_for, doc, line.asked);
}
