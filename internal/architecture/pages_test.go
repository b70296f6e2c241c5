package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pages are what people read, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
	}
	return texts
}

// sources are the product's Go files, by their names without a folder.
func sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			texts[filepath.Base(path)] += string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

var (
	link    = regexp.MustCompile(`\]\(([^):]*)\)`) // none to other places, which have a colon
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	return strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// TestLinksLead: every link between pages leads to a file, and to a heading of it.
func TestLinksLead(t *testing.T) {
	texts := pages(t)
	count := 0
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			count++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(name), path)
			if path == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[1])
				continue
			}
			found := anchor == ""
			for _, h := range heading.FindAllStringSubmatch(texts[target], -1) {
				found = found || slug(h[1]) == anchor
			}
			if !found {
				t.Errorf("%s: %s has no heading #%s", name, target, anchor)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d links were found", count)
	}
}

// TestFilesNamedExist: ARCHITECTURE and CONTRIBUTING name no file or folder that is gone.
func TestFilesNamedExist(t *testing.T) {
	texts, have := pages(t), sources(t)
	count := 0
	for _, name := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, m := range regexp.MustCompile("`((?:[a-zA-Z0-9_.]+/)*[a-z0-9_]+\\.go)`").FindAllStringSubmatch(texts[name], -1) {
			count++
			_, err := os.Stat(filepath.Join(root, m[1]))
			if err != nil && (strings.Contains(m[1], "/") || have[m[1]] == "") {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("(?m)^((?:cmd|internal|bench|docs)[a-z/]*/) ").FindAllStringSubmatch(texts[name], -1) {
			count++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d names were found", count)
	}
}

// TestLogLinesExist: what docs/operating.md says that the log says is in the source.
func TestLogLinesExist(t *testing.T) {
	var all strings.Builder
	for name, text := range sources(t) {
		if !strings.HasSuffix(name, "_test.go") {
			all.WriteString(text)
		}
	}
	page := pages(t)["docs/operating.md"]
	count := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (?:DEBUG|INFO|WARN|ERROR) \\|").FindAllStringSubmatch(page, -1) {
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			count++
			if !strings.Contains(all.String(), `"`+m[1]+`"`) {
				t.Errorf("nothing logs %q", m[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d messages were found", count)
	}
}
