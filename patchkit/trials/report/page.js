// A click on a heading, or Enter or Space on it, sorts the table by that column; once more
// turns the order round.  Rows without a value stay last.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const numbers = head.dataset.kind === "number";
      const turn = down ? -1 : 1;
      const keyed = [...body.rows].map((row) => [value(row), row]);
      keyed.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return turn * (numbers ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      });
      body.append(...keyed.map(([, row]) => row));
    });
  });
}
