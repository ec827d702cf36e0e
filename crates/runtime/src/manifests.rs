//! Reads manifest files: YAML or JSON, one document or many, a file or a folder of them. It applies
//! nothing; `bowline up` and the demo call it.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// An object of a manifest, and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The file.
    pub file: PathBuf,
    /// Which document of the file, from 1.
    pub document: usize,
    /// The object.
    pub object: Value,
}

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file or folder cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not YAML or JSON.
    #[error("{} is not a manifest: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        why: String,
    },
}

/// Reads a file, or every `.yaml`, `.yml` and `.json` file of a folder in order of their names.
pub fn read(path: &Path) -> Result<Vec<Manifest>, ManifestError> {
    let unreadable = |source| ManifestError::Unreadable { path: path.to_owned(), source };
    if !path.is_dir() {
        return read_file(path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let known =
            file.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if known && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(read_file(&file)?);
    }
    Ok(all)
}

fn read_file(path: &Path) -> Result<Vec<Manifest>, ManifestError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ManifestError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads the text of a file; `path` is what it is called in errors.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let documents = bowline_apiserver::yaml::documents(text)
        .map_err(|why| ManifestError::Malformed { path: path.to_owned(), why })?;
    let mut all = Vec::new();
    for (index, value) in documents.into_iter().enumerate() {
        let objects = match (value["kind"].as_str(), value["items"].as_array()) {
            (Some(kind), Some(items)) if kind.ends_with("List") => items.clone(),
            _ => vec![value],
        };
        for object in objects {
            if !object["kind"].is_string() || !object["apiVersion"].is_string() {
                return Err(ManifestError::Malformed {
                    path: path.to_owned(),
                    why: format!("document {} has no apiVersion and kind", index + 1),
                });
            }
            all.push(Manifest { file: path.to_owned(), document: index + 1, object });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_order_of_names_and_lists_are_taken_apart() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "b.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: b1}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b2}\n",
        );
        write(
            "a.json",
            r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a1"}}]}"#,
        );
        write("notes.txt", "not a manifest");
        let names: Vec<String> = read(folder.path())
            .unwrap()
            .iter()
            .map(|manifest| manifest.object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a1", "b1", "b2"]);
    }

    #[test]
    fn a_document_without_kind_names_its_file_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, "apiVersion: v1\nkind: A\n---\nspec: {}\n").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("x.yaml") && error.contains("document 2"), "{error}");
    }
}
