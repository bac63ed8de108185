// A link to a closed story opens it; what is open stays open when the page is loaded again.
(() => {
  const key = "open " + location.pathname;
  const opened = () => [...document.querySelectorAll("details[id][open]")].map((each) => each.id);
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  try {
    JSON.parse(sessionStorage.getItem(key) || "[]").forEach((id) => { const found = document.getElementById(id); if (found) found.open = true; });
    addEventListener("pagehide", () => sessionStorage.setItem(key, JSON.stringify(opened())));
  } catch (error) { /* storage is refused to files in some browsers */ }
  addEventListener("hashchange", open);
  open();
})();
