// Elements whose contents are text: nothing of anybody's is ever read as HTML.

export function make(name, attributes = {}, ...contents) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") element.setAttribute(key, value);
  element.append(...contents.map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

export const by = (id) => document.getElementById(id);

export function show(element, shown) { element.hidden = !shown; }

// Only what differs is touched, so that a reader's place and focus stay.
export function put(element, text) { if (element.textContent !== text) element.textContent = text; }
