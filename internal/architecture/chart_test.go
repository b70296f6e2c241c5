package architecture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"gopkg.in/yaml.v3"
)

const chart = root + "/deploy/helm/agentgate"

// rendered is what the chart comes to with its values and some others in their place,
// as Helm renders it: a template of Go's, with the few functions of Helm's that the chart
// uses. It holds manifests only, by the names of their templates.
func rendered(t *testing.T, others map[string]any) string {
	t.Helper()
	var about struct {
		AppVersion string `yaml:"appVersion"`
	}
	values := map[string]any{}
	readYAML(t, filepath.Join(chart, "Chart.yaml"), &about)
	readYAML(t, filepath.Join(chart, "values.yaml"), &values)
	overlay(values, others)

	all := template.New("").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, dot any) (string, error) {
			var b bytes.Buffer
			err := all.ExecuteTemplate(&b, name, dot)
			return b.String(), err
		},
		"nindent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"toYaml": func(v any) (string, error) {
			var b bytes.Buffer
			e := yaml.NewEncoder(&b)
			e.SetIndent(2)
			err := e.Encode(v)
			return strings.TrimSuffix(b.String(), "\n"), err
		},
		"default": func(otherwise, v any) any {
			if v == nil || v == "" {
				return otherwise
			}
			return v
		},
		"add": func(terms ...int) (sum int) {
			for _, n := range terms {
				sum += n
			}
			return sum
		},
		"int":   func(n int) int { return n },
		"quote": func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"fail":  func(what string) (string, error) { return "", errors.New(what) },
	})
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = all.New(filepath.Base(file)).Parse(string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dot := map[string]any{
		"Values": values, "Release": map[string]any{"Name": "agentgate"}, "Chart": map[string]any{"AppVersion": about.AppVersion},
	}
	var out strings.Builder
	for _, file := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		var b strings.Builder
		if err := all.ExecuteTemplate(&b, filepath.Base(file), dot); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if text := strings.TrimSpace(b.String()); text != "" {
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	return out.String()
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// overlay puts others in the place of values, map by map.
func overlay(values, others map[string]any) {
	for name, other := range others {
		below, isMap := values[name].(map[string]any)
		if more, ok := other.(map[string]any); ok && isMap {
			overlay(below, more)
		} else {
			values[name] = other
		}
	}
}

// TestManifestsAreTheChart: the plain manifests are the chart with its own values, so
// that nobody who reads one of them has to read the other.
func TestManifestsAreTheChart(t *testing.T) {
	const file = root + "/deploy/kubernetes/agentgate.yaml"
	want := "# The chart of ../helm/agentgate with its own values, for whoever has no Helm; the\n" +
		"# values there tell of the Secret that is needed. Written by\n" +
		"# go test ./internal/architecture -run Manifests -update\n#\n" +
		"# Without Redis limits are per process: N replicas admit up to N times as much.\n" + rendered(t, nil)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("%s is not what the chart comes to (error %v): run this test with -update", file, err)
	}
}

// TestChartRefusesToCut: a drain that is shorter than answers may last is refused.
func TestChartRefusesToCut(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "templates", "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "apiVersion")
	for _, c := range []struct {
		drain, most int
		refused     bool
	}{{600, 600, true}, {30, 600, true}, {601, 600, false}} {
		tmpl, err := template.New("").Funcs(template.FuncMap{
			"int": func(n int) int { return n }, "include": func(string, any) string { return "" },
			"fail": func(what string) (string, error) { return "", errors.New(what) },
		}).Parse(head)
		if err != nil {
			t.Fatal(err)
		}
		err = tmpl.Execute(&bytes.Buffer{}, map[string]any{"Values": map[string]any{"stop": map[string]any{"drain": c.drain, "streamMax": c.most}}})
		if refused := err != nil; refused != c.refused {
			t.Errorf("a drain of %d s with answers of up to %d s: refused %v (%v), want %v", c.drain, c.most, refused, err, c.refused)
		}
	}
}

// TestChartSaysWhoseLimits: of a fleet without Redis every place that somebody reads says
// what that means.
func TestChartSaysWhoseLimits(t *testing.T) {
	alone := rendered(t, map[string]any{"shared": map[string]any{"limits": false, "state": false}})
	if n := strings.Count(alone, "per process: N replicas admit up to N times as much"); n != 2 {
		t.Errorf("without Redis the StatefulSet says %d times that limits are per process, want it in its head and its annotation", n)
	}
	if fleet := rendered(t, nil); strings.Contains(fleet, "per process") {
		t.Error("with Redis it is said that limits are per process")
	}
	for _, name := range []string{"deploy/Dockerfile", "deploy/helm/agentgate/values.yaml", "deploy/kubernetes/agentgate.yaml", "deploy/systemd/agentgate.service"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if words := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n#", "\n")), " "); !strings.Contains(words, "limits are per process") {
			t.Errorf("%s does not say that without Redis limits are per process", name)
		}
	}
}
