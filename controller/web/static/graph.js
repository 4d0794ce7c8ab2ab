// The topology as a graph of operators; an open operator shows each partition with its state and position.
//
// Operators are laid out and not partitions: a dozen boxes are readable where a thousand partitions with all their edges are
// not.  In a window as narrow as a phone the boxes are a list in the order of the stream, each with what it reads: a graph
// that has to be pushed about shows less.  Boxes and cells are buttons, so they have names, states and focus; the whole graph is one stop of the Tab key, and
// arrow keys go to the nearest thing in their direction.

import { el, keyed, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";
import { cellWidth, columns, layOut, path } from "./layout.js";
import { members } from "./needs.js";
import { PARTITION_STATES, setShape, shape } from "./shapes.js";

const SVG = "http://www.w3.org/2000/svg";
const FITS = 150; // partitions that are all shown when nobody has said how many to show
const NARROW = 720; // px
const LISTED = 520; // px
const LEAST_SCALE = 0.62;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Graph {
  #box;
  #select;
  #canvas = el("div", { class: "canvas" });
  #edges = document.createElementNS(SVG, "svg");
  #boxes = el("div");
  #opened = new Map(); // operator -> whether somebody has opened or closed it
  #drawn = "";
  #args = null;
  #current = null;

  constructor(box, select) {
    this.#box = box;
    this.#select = select;
    this.#edges.setAttribute("aria-hidden", "true");
    this.#canvas.append(this.#edges, this.#boxes);
    box.append(this.#canvas);
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focusin", (event) => this.#focus(event.target));
    new ResizeObserver(() => this.#args && this.show(...this.#args)).observe(box);
  }

  /** `level`: auto, all or none; `selected`: `{partition}`, `{query}` or null. */
  show(doc, level, selected) {
    this.#args = [doc, level, selected];
    const isIn = selected?.query ? members(doc, selected.query) : (id) => id === selected?.partition;
    const isOpen = (operator) => this.#opened.get(`${level} ${operator.name}`) ?? (level === "all" || (level === "auto" && doc.partitions.length <= FITS));
    const upright = this.#box.clientWidth < NARROW;
    this.listed = this.#box.clientWidth < LISTED;
    const cell = cellWidth(Math.max(...doc.partitions.map((partition) => partition.id.split(".").at(-1).length + String(partition.position ?? "–").length)));
    const states = new Map(doc.partitions.map((partition) => [partition.id, partition]));
    const shape = JSON.stringify([doc.graph, doc.graph.operators.map(isOpen), upright, this.#box.clientWidth, cell]);
    if (shape !== this.#drawn) {
      this.#drawn = shape;
      if (this.listed) this.#list();
      else this.#place(layOut(doc.graph, isOpen, upright, cell));
    }
    keyed(this.#boxes, doc.graph.operators, (operator) => operator.name, (operator) => this.#operator(operator, level), (node, operator) => this.#update(node, operator, isOpen(operator), states, selected, isIn));
    const buttons = this.#buttons();
    if (!buttons.includes(this.#current)) this.#focus(buttons[0]);
  }

  #list() {
    this.#canvas.classList.add("listed");
    Object.assign(this.#canvas.style, { width: "", height: "", zoom: 1 });
    this.#edges.replaceChildren();
  }

  #place({ boxes, edges, width, height }) {
    this.#canvas.classList.remove("listed");
    const scale = Math.max(LEAST_SCALE, Math.min(1, (this.#box.clientWidth - 8) / width));
    Object.assign(this.#canvas.style, { width: `${width}px`, height: `${height}px`, zoom: scale });
    this.places = boxes;
    this.#edges.setAttribute("width", width);
    this.#edges.setAttribute("height", height);
    this.#edges.replaceChildren(...edges.flatMap(drawEdge));
  }

  #operator(operator, level) {
    const toggle = el("button", { type: "button", class: "operator-head", tabindex: "-1" }, el("b"), el("span", { class: "hidden" }), el("span", { class: "small", "aria-hidden": "true" }));
    toggle.addEventListener("click", () => {
      const chosen = this.#args[1];
      this.#opened.set(`${chosen} ${operator.name}`, toggle.getAttribute("aria-expanded") !== "true");
      this.show(...this.#args);
    });
    return el("div", { class: `operator ${operator.kind}`, "data-level": level }, toggle, el("p", { class: "small reading" }), el("div", { class: "cells" }), el("ul", { class: "counts" }));
  }

  #update(node, operator, open, states, selected, isIn) {
    const [toggle, reading, cells, counts] = node.children;
    const partitions = operator.partitions.map((id) => states.get(id));
    const { x, y, width, height } = this.listed ? {} : this.places.get(operator.name);
    const px = (value) => (value === undefined ? "" : `${value}px`);
    Object.assign(node.style, { left: px(x), top: px(y), width: px(width), height: px(height) });
    reading.hidden = !this.listed;
    setText(reading, readingOf(operator, this.#args[0].graph));
    setText(toggle.children[0], operator.name);
    setText(toggle.children[2], `${operator.partitions.length}`);
    setAttribute(toggle, "aria-expanded", open);
    const found = PARTITION_STATES.map((state) => [state, partitions.filter((partition) => partition.state === state).length]).filter(([, many]) => many);
    setText(toggle.children[1], `${operator.kind}, ${count(partitions.length, "partition")}: ${found.map(([state, many]) => `${many} ${state}`).join(", ")}`);
    setAttribute(node, "data-worst", found.at(-1)[0]);
    setAttribute(node, "data-in", !open && partitions.some((partition) => isIn(partition.id)));
    cells.hidden = !open;
    counts.hidden = open;
    cells.style.gridTemplateColumns = this.listed ? "" : `repeat(${columns(partitions.length)}, 1fr)`;
    keyed(cells, open ? partitions : [], (partition) => partition.id, (partition) => this.#cell(partition), (cell, partition) => updateCell(cell, partition, selected, isIn));
    keyed(counts, open ? [] : [...found, ["at", range(partitions)]], ([state]) => state, ([state]) => el("li", {}, ...(state === "at" ? [] : [shape(state)]), el("span")), (line, [state, many]) => setText(line.lastChild, state === "at" ? many : `${many} ${state}`));
  }

  #cell(partition) {
    return el("button", { type: "button", class: "cell", tabindex: "-1", "data-partition": partition.id, onclick: () => this.#select({ partition: partition.id }) }, shape(partition.state), el("span", { class: "index", "aria-hidden": "true" }), el("span", { class: "position", "aria-hidden": "true" }), el("span", { class: "hidden" }));
  }

  #buttons() {
    return [...this.#boxes.querySelectorAll("button")];
  }

  #focus(button) {
    if (!button || button === this.#current) return;
    this.#current?.setAttribute("tabindex", "-1");
    this.#current = button;
    button.setAttribute("tabindex", "0");
  }

  #key(event) {
    const buttons = this.#buttons();
    let goal = null;
    if (event.key === "Home") goal = buttons[0];
    else if (event.key === "End") goal = buttons.at(-1);
    else if (event.key in ARROWS) goal = nearest(event.target, buttons, ARROWS[event.key]);
    else return;
    event.preventDefault();
    goal?.focus();
  }
}

function updateCell(cell, partition, selected, isIn) {
  const [sign, index, position, name] = cell.children;
  setShape(sign, partition.state);
  setText(index, partition.id.split(".").at(-1));
  setText(position, partition.position ?? "–");
  setAttribute(cell, "data-state", partition.state);
  setAttribute(cell, "aria-pressed", partition.id === selected?.partition);
  setAttribute(cell, "data-in", isIn(partition.id));
  const where = partition.position === null ? "not at work" : `batch ${partition.position}`;
  setText(name, `${partition.id}, ${partition.state}, ${where}${partition.node ? `, on ${partition.node}` : ""}`);
  setAttribute(cell, "title", `${partition.id}: ${partition.state}${partition.reason ? `, ${partition.reason}` : ""}; needed by ${count(partition.needed_by, "query")}`);
}

/** What an operator reads, in words, for the list. */
function readingOf(operator, graph) {
  const inputs = graph.edges.filter((edge) => edge.target === operator.name);
  if (!inputs.length) return "a source";
  return `reads ${inputs.map((edge) => `${edge.origin}${edge.label ? ` (${edge.label})` : ""}${edge.feedback ? " of the batch before" : ""}`).join(", ")}`;
}

function range(partitions) {
  const positions = partitions.map((partition) => partition.position).filter((position) => position !== null);
  if (!positions.length) return "no position";
  const [least, most] = [Math.min(...positions), Math.max(...positions)];
  return least === most ? `batch ${least}` : `batches ${least} to ${most}`;
}

function drawEdge({ points, feedback, text, x, y }) {
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path(points));
  line.setAttribute("class", feedback ? "edge feedback" : "edge");
  const [before, last] = points.slice(-2);
  const head = document.createElementNS(SVG, "path");
  head.setAttribute("d", "M0 0L-8 -4V4z");
  head.setAttribute("class", "arrow");
  head.setAttribute("transform", `translate(${last.x} ${last.y}) rotate(${(Math.atan2(last.y - before.y, last.x - before.x) * 180) / Math.PI})`);
  if (!text) return [line, head];
  const label = document.createElementNS(SVG, "text");
  label.setAttribute("x", x);
  label.setAttribute("y", y + 4);
  label.textContent = text;
  return [line, head, label];
}

/** The button that is nearest in a direction: distance along it counts once, distance beside it three times. */
function nearest(from, buttons, [dx, dy]) {
  const middle = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  };
  const [x, y] = middle(from);
  let best = null;
  let least = Infinity;
  for (const button of buttons) {
    const [bx, by] = middle(button);
    const along = (bx - x) * dx + (by - y) * dy;
    const beside = Math.abs((bx - x) * dy) + Math.abs((by - y) * dx);
    if (along > 4 && along + 3 * beside < least) {
      least = along + 3 * beside;
      best = button;
    }
  }
  return best;
}
