//! Output of `completion` and `man`.

use serde::Serialize;

use super::View;

/// A text for another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScriptView {
    /// The shell, or the page's file name.
    pub of: String,
    /// The whole text.
    pub script: String,
}

/// Man pages that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PagesView {
    /// Folder of the pages.
    pub dir: String,
    /// File names of the pages.
    pub pages: Vec<String>,
}

impl View for ScriptView {
    fn name(&self) -> String {
        self.of.clone()
    }

    fn text(&self, _paint: bool) -> String {
        self.script.trim_end().to_owned()
    }
}

impl View for PagesView {
    fn name(&self) -> String {
        self.pages.join("\n")
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} pages written to {}", self.pages.len(), self.dir)
    }
}
