/* Show the text when it has its place: formulas on the first screen are typeset before it appears, all others piece
   by piece afterwards, where nothing on the screen moves. Without scripts the text is there at once, formulas as TeX. */
(() => {
  const root = document.documentElement;
  const show = () => root.classList.remove("unsettled");
  const pause = () => new Promise((done) => { setTimeout(done); });
  const PIECE = 60;

  function isFirst(formula) {
    if (formula.closest(".toggle-hidden, details:not([open])")) return false;
    const { top, bottom } = formula.getBoundingClientRect();
    return bottom > -0.25 * innerHeight && top < 1.25 * innerHeight;
  }

  async function typeset() {
    const formulas = [...document.querySelectorAll(".math")];
    const first = new Set(formulas.filter(isFirst));
    const rest = formulas.filter((formula) => !first.has(formula));
    await window.MathJax.typesetPromise([...first]);
    root.getBoundingClientRect(); // lays the formulas out, which asks for their fonts: other ones have other widths
    await document.fonts.ready;
    show();
    while (rest.length) {
      await pause();
      await window.MathJax.typesetPromise(rest.splice(0, PIECE));
    }
  }

  if (window.MathJax) {
    window.MathJax.startup = { pageReady: () => typeset().finally(show) };
    document.querySelector("script[src*='tex-chtml.js']")?.addEventListener("error", show);
  } else {
    document.addEventListener("DOMContentLoaded", show);
  }
})();
