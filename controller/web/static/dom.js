// Changes to the page that leave alone what has not changed: focus, selection and what is read aloud survive an update.
// Text is only ever set as text, so nothing in a document can become markup.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A cell of a table whose title stands beside it where the window is narrow; roles, as such a table is no table to CSS. */
export const cell = (title, attributes = {}, ...children) => el("td", { role: "cell", "data-title": title, ...attributes }, ...children);

export function setText(node, value) {
  const text = String(value);
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Children of `parent` in the order of `items`; the one of a key stays the same element as long as the key is there. */
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = old.get(name);
    old.delete(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

const shown = new WeakMap();

/** Calls `draw` when `value` is another one than the last time for this element. */
export function whenChanged(node, value, draw) {
  const text = JSON.stringify(value);
  if (shown.get(node) === text) return;
  shown.set(node, text);
  draw();
}
