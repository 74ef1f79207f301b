/* Filters over the tables of claims. Without this script every claim is shown and there are no dead controls.
   The choice stands in the address (?paper=svm&status=partly), so that a selection can be linked. */
(() => {
  "use strict";

  const keys = { paper: "Paper", status: "Verdict" };

  function valueOf(row, key) {
    const name = [...row.classList].find((c) => c.startsWith(`${key}-`));
    return name ? name.slice(key.length + 1) : "";
  }

  function labelOf(row, key) {
    if (key === "status") return row.querySelector(".verdict").textContent;
    const section = row.closest("section");
    const heading = section && section.querySelector("h1, h2, h3");
    return heading ? heading.firstChild.textContent.trim() : valueOf(row, key);
  }

  function keepRoles(table) {
    table.setAttribute("role", "table");
    table.querySelectorAll("thead, tbody").forEach((part) => part.setAttribute("role", "rowgroup"));
    table.querySelectorAll("tr").forEach((row) => row.setAttribute("role", "row"));
    table.querySelectorAll("thead th").forEach((cell) => cell.setAttribute("role", "columnheader"));
    table.querySelectorAll("tbody td").forEach((cell) => cell.setAttribute("role", "cell"));
  }

  function makeSelect(key, rows, apply) {
    const choices = new Map(rows.map((row) => [valueOf(row, key), labelOf(row, key)]));
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.name = key;
    select.append(new Option("all", ""));
    choices.forEach((text, value) => select.append(new Option(text, value)));
    const wanted = new URLSearchParams(location.search).get(key);
    if (choices.has(wanted)) select.value = wanted;
    select.addEventListener("change", apply);
    label.append(keys[key], select);
    return [label, select];
  }

  function remember(selects) {
    const query = new URLSearchParams(selects.filter((s) => s.value).map((s) => [s.name, s.value])).toString();
    try {
      history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
    } catch {
      /* a page opened from disk may not change its address; the filter works all the same */
    }
  }

  function start() {
    const tables = [...document.querySelectorAll("table.ledger")];
    if (!tables.length) return;
    tables.forEach(keepRoles);
    const rows = tables.flatMap((table) => [...table.querySelectorAll("tbody tr")]);
    const form = document.createElement("form");
    const count = document.createElement("output");
    const reset = document.createElement("button");
    const selects = [];

    function apply() {
      const shown = rows.filter((row) => {
        row.hidden = selects.some((s) => s.value && valueOf(row, s.name) !== s.value);
        return !row.hidden;
      });
      tables.forEach((table) => {
        const none = ![...table.querySelectorAll("tbody tr")].some((row) => !row.hidden);
        table.hidden = none;
        empty.get(table).hidden = !none;
      });
      count.textContent = `${shown.length} of ${rows.length} claims shown`;
      remember(selects);
    }

    const empty = new Map(tables.map((table) => {
      const note = document.createElement("p");
      note.className = "ledger-empty";
      note.textContent = "No claim of this paper matches the filters.";
      note.hidden = true;
      (table.closest(".pst-scrollable-table-container") || table).after(note);
      return [table, note];
    }));

    form.className = "ledger-filters";
    form.setAttribute("aria-label", "Filter the claims");
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const key of Object.keys(keys)) {
      const [label, select] = makeSelect(key, rows, apply);
      selects.push(select);
      form.append(label);
    }
    reset.type = "button";
    reset.textContent = "Show all";
    reset.addEventListener("click", () => {
      selects.forEach((select) => { select.value = ""; });
      apply();
    });
    count.setAttribute("aria-live", "polite");
    form.append(reset, count);
    (tables[0].closest("section section") || tables[0]).before(form);
    apply();
    if (location.hash.startsWith("#ledger-")) document.querySelector(location.hash)?.scrollIntoView();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
