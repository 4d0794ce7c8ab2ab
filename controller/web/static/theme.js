// Dark or light: as the system says, unless somebody has chosen otherwise here.

export function theme(select, changed = () => {}) {
  const apply = (value) => {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    changed();
  };
  try {
    select.value = localStorage.getItem("reprise-theme") ?? "";
  } catch {
    select.value = ""; // storage is forbidden: the choice lasts as long as the page
  }
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    try {
      localStorage.setItem("reprise-theme", select.value);
    } catch {
      return;
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
