// DOM helpers. Text is set as text only, never parsed as HTML.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

// Name of an allocation: its number, or 12_7 for the element with index 7 of job array 12.
export const jobName = (id, element) => element ? `${element.array}_${element.index}` : `${id}`;

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Time since a timestamp, as text.
export function age(text, now = Date.now()) {
  return duration(Math.max(0, (now - Date.parse(text)) / 1000));
}

// Duration as text: "3 s", "12 min", "4 h", "2 d".
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function bytes(count) {
  return count >= 2 ** 40 ? `${(count / 2 ** 40).toFixed(1)} TiB` : `${Math.round(count / 2 ** 30)} GiB`;
}

// Natural sort order of names: gpu2 before gpu10.
export const inOrder = new Intl.Collator("en", { numeric: true }).compare;
