// What a reader would stumble over, as sentences. A box that scrolls must show that it does: a shadow at the edge, and a
// first column that stays, of at most three fifths of the box. Figures keep their words inside, apart and legible.
const faults = [], page = document.documentElement;
const name = (el) => `<${el.tagName.toLowerCase()}${el.getAttribute("class") ? " ." + el.getAttribute("class") : ""}> ` +
  (el.textContent || "").trim().replace(/\s+/g, " ").slice(0, 50);
const seen = (el) => el.getClientRects().length > 0 && getComputedStyle(el).visibility !== "hidden";
document.querySelectorAll("details").forEach((d) => { d.open = true; });
if (page.scrollWidth > page.clientWidth) faults.push(`the page scrolls sideways: ${page.scrollWidth} > ${page.clientWidth}`);
for (const el of document.querySelectorAll("body *")) {
  if (el.closest("svg") || el.closest(".unseen") || !seen(el)) continue;
  const style = getComputedStyle(el), box = el.getBoundingClientRect(), wider = el.scrollWidth > el.clientWidth + 1;
  const inside = el.closest(".scroll") !== null;
  if (!inside && (box.right > page.clientWidth + 1 || box.left < -1)) faults.push(`outside the page: ${name(el)}`);
  if (!wider || style.display.startsWith("inline")) continue;
  if (["hidden", "clip"].includes(style.overflowX)) faults.push(`cut off: ${name(el)}`);
  if (["auto", "scroll"].includes(style.overflowX)) {
    const first = el.querySelector("tbody tr > :first-child");
    if (!style.backgroundImage.includes("gradient")) faults.push(`scrolls without a hint: ${name(el)}`);
    else if (!first || getComputedStyle(first).position !== "sticky") faults.push(`first column moves: ${name(el)}`);
    else if (first.offsetWidth > 0.6 * el.clientWidth) faults.push(`first column hides the rest: ${name(el)}`);
  }
}
for (const svg of document.querySelectorAll("svg")) {
  if (!seen(svg)) continue;
  const frame = svg.getBoundingClientRect(), scale = svg.getScreenCTM().a, words = [];
  for (const t of svg.querySelectorAll("text")) {
    const box = t.getBoundingClientRect();
    if (!t.textContent.trim() || box.width === 0) continue;
    const over = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
    if (over > 2) faults.push(`outside its figure by ${over.toFixed(0)}: ${name(t)}`);
    const size = parseFloat(getComputedStyle(t).fontSize) * scale;
    if (size < SMALLEST) faults.push(`letters of ${size.toFixed(1)} px: ${name(t)}`);
    if (t.getCTM().b === 0) words.push([t, box]);  // turned words have larger boxes than letters
  }
  for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
    const [a, b] = [words[i][1], words[j][1]];
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 2 && h > 0.45 * Math.min(a.height, b.height)) faults.push(`words overlap: ${name(words[i][0])} | ${name(words[j][0])}`);
  }
}
return [...new Set(faults)];
