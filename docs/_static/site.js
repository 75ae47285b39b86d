// Boxes that scroll can be reached with the keyboard; a long signature is not announced as a list.
document.addEventListener("DOMContentLoaded", () => {
  document
    .querySelectorAll(".highlight pre, .tf-report, .tf-value, .table-wrapper")
    .forEach((element) => element.setAttribute("tabindex", "0"));
  document.querySelectorAll(".sphx-glr-thumbcontainer a.internal").forEach((link) => {
    link.setAttribute("aria-label", link.textContent);
  });
  document.querySelectorAll("dt.sig > dl").forEach((element) => {
    element.setAttribute("role", "presentation");
    element.querySelectorAll("dd").forEach((line) => line.setAttribute("role", "presentation"));
  });
});
