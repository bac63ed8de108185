// Asks the local server whether there is news, and loads the page again if there is.
(() => {
  const mark = document.documentElement.dataset.stamp;
  const state = document.getElementById("live");
  setInterval(async () => {
    try {
      const now = await (await fetch("/stamp")).text();
      if (now !== mark) location.reload();
      state.textContent = "live";
    } catch (error) { state.textContent = "the server has ended; this is its last page"; }
  }, 2000);
})();
