// A table below a caption that can be scrolled, and is one card for each line on a phone.

import { cell, el } from "./dom.js";

/** `numbers`: indices of the columns that hold numbers; a column titled "why" has room for sentences. */
export function table(caption, titles, lines, numbers) {
  const kind = (index) => (numbers.includes(index) ? "number" : null);
  const head = el("tr", { role: "row" }, ...titles.map((title, index) => el("th", { scope: "col", role: "columnheader", class: kind(index) ?? "" }, title)));
  const rows = lines.map(([first, ...rest]) => el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", class: "name" }, String(first)), ...rest.map((value, index) => cell(titles[index + 1], { class: kind(index + 1) ?? (titles[index + 1] === "why" ? "why" : "") }, String(value)))));
  return el("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": caption }, el("table", { role: "table", class: "cards" }, el("caption", {}, caption), el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...rows)));
}
