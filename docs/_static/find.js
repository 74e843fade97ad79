/* The search of the site: sections.js holds every section, this ranks them. It works from a folder, without a server. */
"use strict";

const STOP = new Set(("a an and are as at be by can do does for from how i if in is it its me my of on or so that the "
  + "their there this to was what when where who why will with you your").split(" "));
const MOST = 40;          // sections that are listed
const BEFORE = 70, AFTER = 170;  // characters of the excerpt around its first hit

/* Words that are searched for: lower case, without endings that change with the grammar. */
function stems(text) {
  const words = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
  const kept = words.filter((word) => !STOP.has(word));
  return (kept.length ? kept : words).map(stem);
}

function stem(word) {
  if (word.length < 5 || word.includes("_")) return word;
  return word.replace(/(ies|y)$/, "i").replace(/(ing|ed|es|s|e)$/, "") || word;
}

const INDEX = SECTIONS.map((section) => {
  const [url, page, heading, text, weight] = section;
  return { url, page, heading, text, weight, head: ` ${stems(heading).join(" ")} `, top: ` ${stems(page).join(" ")} `,
    body: ` ${stems(text).join(" ")} ` };
});

function count(text, word) {
  let found = 0;
  for (let at = text.indexOf(word); at >= 0 && found < 20; at = text.indexOf(word, at + 1)) found += 1;
  return found;
}

/* A whole word counts more than the beginning of one; a heading more than its text; all words more than some. */
function score(section, words, rarity) {
  let sum = 0, met = 0;
  words.forEach((word, k) => {
    const whole = ` ${word} `, start = ` ${word}`;
    let here = 0;
    if (section.head.includes(whole)) here += 9;
    else if (section.head.includes(start)) here += 5;
    if (section.top.includes(whole)) here += 3;
    const times = count(section.body, whole), starts = count(section.body, start);
    here += Math.log2(1 + times) + 0.4 * Math.log2(1 + starts - times);
    if (here > 0) met += 1;
    sum += here * rarity[k];
  });
  const beside = words.length > 1 && section.head.includes(` ${words.join(" ")} `) ? 2 : 1;
  return sum * beside * section.weight * (met / words.length) ** 3;
}

function found(query) {
  const words = [...new Set(stems(query))];
  if (!words.length) return [];
  const holds = (section, word) => section.body.includes(` ${word}`) || section.head.includes(` ${word}`);
  const rarity = words.map((word) => {
    const many = INDEX.reduce((n, section) => n + (holds(section, word) ? 1 : 0), 0);
    return Math.log2(2 + INDEX.length / (1 + many));
  });
  return INDEX.map((section) => [score(section, words, rarity), section])
    .filter(([value]) => value > 0)
    .sort((a, b) => b[0] - a[0] || a[1].url.localeCompare(b[1].url))
    .slice(0, MOST)
    .map(([, section]) => section);
}

/* The part of a text around its first hit, with hits marked. */
function excerpt(text, query) {
  const words = (query.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []).filter((word) => !STOP.has(word)).map(stem);
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const hit = escaped.length ? new RegExp(`\\b(?:${escaped.join("|")})[\\p{L}\\p{N}_]*`, "giu") : null;
  const first = hit ? text.search(hit) : 0;
  const start = Math.max(0, first - BEFORE), part = text.slice(start, start + BEFORE + AFTER);
  const line = document.createElement("p");
  let at = 0;
  if (start > 0) line.append("... ");
  for (const match of hit ? part.matchAll(hit) : []) {
    line.append(part.slice(at, match.index));
    const mark = document.createElement("mark");
    mark.textContent = match[0];
    line.append(mark);
    at = match.index + match[0].length;
  }
  line.append(part.slice(at) + (start + part.length < text.length ? " ..." : ""));
  return line;
}

function show(query) {
  const list = document.getElementById("found"), sections = found(query);
  document.querySelectorAll("input[name=q]").forEach((box) => { box.value = query; });
  document.getElementById("found-summary").textContent = !query ? "Type words into the box."
    : !sections.length ? `Nothing has the words "${query}".`
      : `${sections.length === MOST ? `The best ${MOST}` : sections.length} sections for "${query}".`;
  for (const section of sections) {
    const item = document.createElement("li"), link = document.createElement("a"), where = document.createElement("span");
    link.href = section.url;
    link.textContent = section.heading;
    where.textContent = section.heading === section.page ? "" : section.page;
    where.className = "found-page";
    item.append(link, where, excerpt(section.text, query));
    list.append(item);
  }
}

show(new URLSearchParams(window.location.search).get("q") || "");
