# ruff: noqa: E501
"""What an eye would complain of, measured in the browser: text that is cut, texts and boxes over each other, and a page that
has to be pushed sideways."""

from __future__ import annotations

from selenium.webdriver.chrome.webdriver import WebDriver

_TEXTS = """
const clips = [];
function clipOf(node) {
  let [left, top, right, bottom] = [-1e9, -1e9, 1e9, 1e9];
  if (node.closest('details:not([open])') && !node.closest('summary')) return null;  // it has a place and is not drawn
  for (let at = node; at && at !== document.documentElement; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (style.clipPath !== 'none' || style.visibility === 'hidden') return null;
    if (style.overflowX !== 'visible' || style.overflowY !== 'visible') {
      const r = at.getBoundingClientRect();
      [left, top, right, bottom] = [Math.max(left, r.left), Math.max(top, r.top), Math.min(right, r.right), Math.min(bottom, r.bottom)];
    }
  }
  return [left, top, right, bottom];
}
function texts() {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const words = node.textContent.trim();
    if (!words || ['OPTION', 'SELECT', 'SCRIPT', 'STYLE'].includes(node.parentElement.tagName)) continue;
    const clip = clipOf(node.parentElement);
    if (clip === null) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      const box = [Math.max(r.left, clip[0]), Math.max(r.top, clip[1]), Math.min(r.right, clip[2]), Math.min(r.bottom, clip[3])];
      if (box[2] - box[0] > 1 && box[3] - box[1] > 1) found.push({words: words.slice(0, 60), box, node, whole: r});
    }
  }
  return found;
}
const over = (a, b, by) => Math.min(a[2], b[2]) - Math.max(a[0], b[0]) > by && Math.min(a[3], b[3]) - Math.max(a[1], b[1]) > by;
"""
_CUT = (
    _TEXTS
    + """
const found = [];
const scrolls = (style) => ['auto', 'scroll'].includes(style.overflowX) || ['auto', 'scroll'].includes(style.overflowY);
for (const {words, node, whole} of texts()) {
  for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (scrolls(style)) break;
    const r = at.getBoundingClientRect();
    const cutting = style.overflowX !== 'visible' || style.textOverflow === 'ellipsis';
    const box = at.matches('.panel, .cell, .operator, .operator-head, td, th, .top, aside, .notice');
    if ((cutting || box) && (whole.right > r.right + 1.5 || whole.left < r.left - 1.5 || whole.bottom > r.bottom + 4 || whole.top < r.top - 4)) {
      found.push(`${words} in ${at.tagName} ${at.className} ${at.id}`);
      break;
    }
  }
}
return found;
"""
)
_OVER = (
    _TEXTS
    + """
const found = [];
const all = texts().sort((a, b) => a.box[1] - b.box[1]);
for (let i = 0; i < all.length; i++) {
  for (let k = i + 1; k < all.length && all[k].box[1] < all[i].box[3]; k++) {
    if (all[i].node !== all[k].node && over(all[i].box, all[k].box, 3)) found.push(`${all[i].words} | ${all[k].words}`);
  }
}
for (const kind of ['.panel', '.operator', '.cell', '.figure', '.nodes li', '.events li', '.cards tbody tr']) {
  const boxes = [...document.querySelectorAll(kind)].map((node) => ({node, r: node.getBoundingClientRect()}))
    .filter(({r}) => r.width && r.height).map(({node, r}) => ({node, box: [r.left, r.top, r.right, r.bottom], own: node.closest('.scroll, .events, .panel')}));
  boxes.sort((a, b) => a.box[1] - b.box[1]);
  for (let i = 0; i < boxes.length; i++)
    for (let k = i + 1; k < boxes.length && boxes[k].box[1] < boxes[i].box[3]; k++)
      if ((kind === '.panel' || boxes[i].own === boxes[k].own) && over(boxes[i].box, boxes[k].box, 2))
        found.push(`${kind}: ${boxes[i].node.textContent.slice(0, 40)} | ${boxes[k].node.textContent.slice(0, 40)}`);
}
return found;
"""
)
_WIDE = """
const wide = [...document.querySelectorAll('.scroll, .graph, .events')].filter((node) => !node.closest('details:not([open])') && node.scrollWidth > node.clientWidth + 1);
return [document.documentElement.scrollWidth, wide.map((node) => node.id || node.getAttribute('aria-label') || node.className)];
"""


def assert_nothing_cut_or_over_another(driver: WebDriver) -> None:
    """No text reaches out of its box, and no two texts or boxes lie over each other."""
    assert driver.execute_script(_CUT) == []
    assert driver.execute_script(_OVER) == []


def assert_not_pushed_sideways(driver: WebDriver, width: int, *, phone: bool) -> None:
    """The page is no wider than its window; on a phone no part of it is, either."""
    found, parts = driver.execute_script(_WIDE)
    assert found <= width
    assert not phone or parts == []
