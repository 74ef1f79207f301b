/* Mend what the theme and the widget library leave unreadable for a screen reader or unreachable by keyboard. */
(() => {
  const text = (node) => (node ? node.textContent.trim() : "");

  /* A visible label must be part of the accessible name (WCAG 2.5.3). */
  function dropContradictingNames(root) {
    const wrong = ".search-button-field[aria-label], .theme-switch-button[aria-label], summary[aria-label]";
    root.querySelectorAll(wrong).forEach((node) => {
      if (text(node)) node.removeAttribute("aria-label");
    });
  }

  function nameWidgets(root) {
    root.querySelectorAll(".noUi-handle:not([aria-label])").forEach((handle) => {
      const box = handle.closest(".widget-slider");
      handle.setAttribute("aria-label", text(box && box.querySelector(".widget-label")) || "slider");
    });
    root.querySelectorAll(".jupyter-widgets input:not([aria-label]):not([type=hidden])").forEach((input) => {
      const box = input.closest(".jupyter-widgets");
      input.setAttribute("aria-label", text(box && box.querySelector("label, .widget-label")) || "value");
    });
  }

  function nameToggles(root) {
    root.querySelectorAll(".admonition-title > .toggle-button").forEach((button) => {
      const title = text(button.parentElement);
      button.setAttribute("aria-label", `Show or hide: ${title}`);
    });
  }

  /* A box that scrolls must take the keyboard's focus, and have a name. */
  const scrolling = "div.highlight pre, div.math, .pst-scrollable-table-container, div.cell_output .output";
  function reachScrollingBoxes(root) {
    root.querySelectorAll(scrolling).forEach((box) => {
      const wide = box.scrollWidth > box.clientWidth + 1;
      if (!wide && box.dataset.reach) {
        ["tabindex", "role", "aria-label", "data-reach"].forEach((name) => box.removeAttribute(name));
      } else if (wide && box.tabIndex < 0) {  // the theme's script says -1 until it measures again
        box.dataset.reach = "1";
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.matches("div.math") ? "wide formula" : "wide content");
      }
    });
  }

  function nameRegions() {
    const sidebar = document.querySelector(".bd-sidebar-primary");
    if (sidebar && !sidebar.hasAttribute("aria-label")) {
      sidebar.setAttribute("role", "region");
      sidebar.setAttribute("aria-label", "Book contents and search");
    }
    document.querySelectorAll(".citation-list > .citation").forEach((entry) => entry.setAttribute("role", "listitem"));
  }

  /* The theme's script takes the focus from a button that was pressed: whoever pressed a key gets it back. */
  function keepFocus(event) {
    const button = event.detail === 0 && event.target.closest("button");
    if (button && document.activeElement === document.body) button.focus();
  }

  function mend(root) {
    dropContradictingNames(root);
    nameWidgets(root);
    nameToggles(root);
    reachScrollingBoxes(root);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const main = document.querySelector("main") || document.body;
    let waiting = false;
    const later = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; mend(document); });
    };
    nameRegions();
    mend(document);
    new MutationObserver(later).observe(main, { childList: true, subtree: true });
    document.addEventListener("click", keepFocus);
    window.addEventListener("resize", later);
    window.addEventListener("load", later);
  });
})();
