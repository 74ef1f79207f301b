/* html-manager (ipywidgets without a kernel) still speaks to MathJax 2; hand its requests to MathJax 3. */
document.addEventListener("DOMContentLoaded", () => {
  const mathjax = window.MathJax;
  if (!mathjax?.startup?.promise || mathjax.Hub) return;
  const typeset = ([command, , element]) => {
    if (command === "Typeset" && element) mathjax.startup.promise.then(() => mathjax.typesetPromise([element]));
  };
  mathjax.Hub = { Queue: (...requests) => requests.forEach(typeset) };
});
