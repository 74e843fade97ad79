// Sorting the rows is a convenience; the page says everything without it.
document.querySelectorAll("table.rows").forEach((table) => {
  table.classList.add("sortable");
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, column) => {
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.key.replace(/^inf$/, "Infinity");
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const both = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        return both ? (Number(x) === Number(y) ? 0 : Number(x) < Number(y) ? -1 : 1) : x.localeCompare(y);
      };
      const rows = [...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
      body.append(...rows);
    });
  });
});
