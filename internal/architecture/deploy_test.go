package architecture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"agentgw/internal/config"
)

// object is a manifest; at follows a path into it, nil where there is nothing.
type object = map[string]any

func at(v any, names ...any) any {
	for _, name := range names {
		switch of := v.(type) {
		case object:
			v = of[name.(string)]
		case []any:
			if i := name.(int); i < len(of) {
				v = of[i]
			} else {
				v = nil
			}
		default:
			return nil
		}
	}
	return v
}

func list(v any) []any { l, _ := v.([]any); return l }

// objects are the manifests of a text, by kind and name.
func objects(text string) (map[string]object, error) {
	found := map[string]object{}
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		id := fmt.Sprintf("%v/%v", o["kind"], at(o, "metadata", "name"))
		if found[id] != nil {
			return nil, fmt.Errorf("%s is there twice", id)
		}
		found[id] = o
	}
}

// settingsOf are those that an environment comes to, with something in place of each
// secret. Files that hold one are in folder.
func settingsOf(folder string, environ map[string]string) (*config.Settings, error) {
	var list []string
	for name, value := range environ {
		switch {
		case value == "" && name == "AGENTGATE_DATABASE_URL":
			value = "postgres://agentgate@postgres/agentgate?sslmode=verify-full"
			if environ["AGENTGATE_VAULT_KEY_FILE"] == "" {
				return nil, errors.New("AGENTGATE_DATABASE_URL is there without AGENTGATE_VAULT_KEY_FILE, and no start takes it so")
			}
		case strings.HasSuffix(name, "TOKEN_FILE"), strings.Contains(name, "VAULT_KEY"):
			value = filepath.Join(folder, path.Base(value))
			if err := os.WriteFile(value, []byte(strings.Repeat("4d", 32)), 0o600); err != nil {
				return nil, err
			}
		case value == "" && name == "AGENTGATE_REDIS_URL":
			value = "redis://redis:6379"
		}
		list = append(list, name+"="+value)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	return config.Load(flags, list, nil)
}

// longEnough says what is wrong with how a gateway is ended: it drains for longer than
// any answer lasts, and is killed only when it has had the time for what comes after,
// which is to cut what is left (2 s) and to seal the receipts.
func longEnough(s *config.Settings, before, grace time.Duration) error {
	if s.StreamMax == 0 || s.DrainTimeout <= s.StreamMax {
		return fmt.Errorf("drains for %v, and an answer may last %v", s.DrainTimeout, s.StreamMax)
	}
	if least := before + s.DrainTimeout + 10*time.Second; grace < least {
		return fmt.Errorf("is killed after %v, and takes up to %v to end", grace, least)
	}
	return nil
}

// mountedAt is the mount that a path lies below, nil where none is.
func mountedAt(container any, file string) any {
	for _, m := range list(at(container, "volumeMounts")) {
		if strings.HasPrefix(file, at(m, "mountPath").(string)+"/") {
			return m
		}
	}
	return nil
}

// badFleet says what is wrong with manifests that run the gateway.
func badFleet(folder, text string) (wrong []string) {
	blame := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	all, err := objects(text)
	if err != nil {
		return []string{err.Error()}
	}
	set, pod := all["StatefulSet/agentgate"], any(nil)
	if pod = at(set, "spec", "template", "spec"); pod == nil {
		return []string{"there is no StatefulSet"}
	}
	container := at(pod, "containers", 0)
	same := func(what string, have, want any) {
		if fmt.Sprint(have) != fmt.Sprint(want) {
			blame("%s is %v, want %v", what, have, want)
		}
	}
	for _, rule := range []struct {
		of   any
		path string
		want any
	}{
		{pod, "enableServiceLinks", false}, {pod, "automountServiceAccountToken", false},
		{pod, "securityContext.runAsNonRoot", true}, {pod, "securityContext.runAsUser", 65532}, {pod, "securityContext.fsGroup", 65532},
		{pod, "securityContext.fsGroupChangePolicy", "OnRootMismatch"}, {pod, "securityContext.seccompProfile.type", "RuntimeDefault"},
		{container, "securityContext.readOnlyRootFilesystem", true}, {container, "securityContext.allowPrivilegeEscalation", false},
		{container, "securityContext.capabilities.drop", "[ALL]"}, {container, "args", "[serve]"},
		{container, "readinessProbe.httpGet.path", "/readyz"}, {container, "livenessProbe.httpGet.path", "/livez"}, {container, "startupProbe.httpGet.path", "/livez"},
		{set, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"}, {set, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"},
		{all["PodDisruptionBudget/agentgate"], "spec.maxUnavailable", 1},
	} {
		v := rule.of
		for name := range strings.SplitSeq(rule.path, ".") {
			v = at(v, name)
		}
		same(rule.path, v, rule.want)
	}
	if strings.Contains(strings.ToLower(text), "subpath:") {
		blame("a file is mounted by itself, and never changes then")
	}
	environ := map[string]string{}
	for _, e := range list(at(container, "env")) {
		name, value := at(e, "name").(string), at(e, "value")
		if _, isText := value.(string); value != nil && !isText {
			blame("%s is no text: %v", name, value)
		}
		environ[name], _ = value.(string)
	}
	settings, err := settingsOf(folder, environ)
	if err != nil {
		return append(wrong, err.Error())
	}
	for name, file := range environ {
		if (strings.HasSuffix(name, "_FILE") || name == "AGENTGATE_REGISTRY") && mountedAt(container, file) == nil {
			blame("%s: nothing is mounted where %s is", name, file)
		}
	}
	data := at(mountedAt(container, settings.DataDir), "name")
	if claim := at(set, "spec", "volumeClaimTemplates", 0, "metadata", "name"); data == nil || data != claim {
		blame("the data folder %s is not on the volume of the replica", settings.DataDir)
	}
	ports := map[any]any{}
	for _, p := range list(at(container, "ports")) {
		ports[at(p, "name")] = at(p, "containerPort")
	}
	same("the port of agents", fmt.Sprint(":", ports["agents"]), settings.Listen)
	same("the port of operators", fmt.Sprint(":", ports["operators"]), settings.AdminListen)
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		same("the port of the "+probe, at(container, probe, "httpGet", "port"), "operators")
	}
	before, _ := at(container, "lifecycle", "preStop", "sleep", "seconds").(int)
	if before < 5 {
		blame("it stops %d s after it was taken out of service, before balancers know", before)
	}
	grace, _ := at(pod, "terminationGracePeriodSeconds").(int)
	if err := longEnough(settings, time.Duration(before)*time.Second, time.Duration(grace)*time.Second); err != nil {
		blame("it %v", err)
	}
	labels, _ := at(set, "spec", "template", "metadata", "labels").(object)
	for _, selector := range []any{at(set, "spec", "selector", "matchLabels"), at(all["Service/agentgate"], "spec", "selector"),
		at(all["Service/agentgate-replicas"], "spec", "selector"), at(all["PodDisruptionBudget/agentgate"], "spec", "selector", "matchLabels")} {
		wanted, _ := selector.(object)
		if len(wanted) == 0 {
			blame("something selects no pod")
		}
		for name, value := range wanted {
			same("the label "+name, labels[name], value)
		}
	}
	return wrong
}

// TestManifestsHold: what the chart comes to, by its own values and by others, runs a
// gateway with settings that there are and that it takes, from volumes that are there, as
// nobody, and ends it by what the binary needs to end.
func TestManifestsHold(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"as it is":     nil,
		"with TLS":     {"tlsSecretName": "tls"},
		"with state":   {"shared": map[string]any{"state": true}},
		"alone":        {"replicas": 1, "shared": map[string]any{"limits": false, "state": false}},
		"with others":  {"settings": map[string]any{"AGENTGATE_LOG_LEVEL": "debug", "AGENTGATE_RECEIPT_RETENTION": "720h"}, "storage": map[string]any{"className": "fast"}},
		"its own file": {"registryConfigMap": "mine", "networkPolicy": map[string]any{"enabled": false}},
	} {
		for _, wrong := range badFleet(t.TempDir(), rendered(t, values)) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// TestManifestRulesCatch changes one thing of the manifests at a time.
func TestManifestRulesCatch(t *testing.T) {
	text := rendered(t, map[string]any{"tlsSecretName": "tls"})
	for _, c := range []struct{ from, to, says string }{
		{"enableServiceLinks: false", "enableServiceLinks: true", "enableServiceLinks"},
		{"      enableServiceLinks: false\n", "", "enableServiceLinks"},
		{"readOnly: true}\n", "readOnly: true, subPath: registry.yaml}\n", "by itself"},
		{"name: AGENTGATE_STREAM_MAX,", "name: AGENTGATE_STREAM_MAXIMUM,", "STREAM_MAXIMUM"},
		{"value: 615s", "value: 615", "DRAIN_TIMEOUT"},
		{"value: 615s", "value: 600s", "drains for"},
		{"terminationGracePeriodSeconds: 640", "terminationGracePeriodSeconds: 630", "is killed after"},
		{"sleep: {seconds: 10}", "sleep: {seconds: 1}", "before balancers know"},
		{"sleep: {seconds: 10}", "exec: {command: [sleep, '10']}", "before balancers know"},
		{"path: /readyz", "path: /livez", "readinessProbe"},
		{"containerPort: 9090", "containerPort: 9091", "operators"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"},
		{"drop: [ALL]", "drop: [NET_RAW]", "drop"},
		{"seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}", "seccompProfile"},
		{"runAsUser: 65532", "runAsUser: 0", "runAsUser"},
		{"value: /data/agentgate}", "value: /var/agentgate}", "data folder"},
		{"metadata: {name: data}", "metadata: {name: other}", "data folder"},
		{"mountPath: /etc/agentgate/secrets", "mountPath: /etc/agentgate/secret", "ADMIN_TOKEN_FILE"},
		{"mountPath: /etc/agentgate/tls", "mountPath: /etc/agentgate/ssl", "TLS_KEY_FILE"},
		{"whenScaled: Retain", "whenScaled: Delete", "whenScaled"},
		{"kind: StatefulSet", "kind: Deployment", "no StatefulSet"},
	} {
		changed := strings.Replace(text, c.from, c.to, 1)
		if changed == text {
			t.Errorf("there is no %q to change", c.from)
		}
		if wrong := strings.Join(badFleet(t.TempDir(), changed), "\n"); !strings.Contains(wrong, c.says) {
			t.Errorf("%q for %q: want something said of %q, got %q", c.to, c.from, c.says, wrong)
		}
	}
}

// TestUnitHolds: the systemd unit gives settings that there are, and its limits are
// longer than what the binary takes.
func TestUnitHolds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/systemd/agentgate.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit, environ := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		unit[name] = append(unit[name], value)
		if name == "Environment" {
			variable, setting, _ := strings.Cut(value, "=")
			environ[variable] = setting
		}
	}
	settings, err := settingsOf(t.TempDir(), environ)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := strconv.Atoi(strings.Join(unit["TimeoutStopSec"], ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := longEnough(settings, 0, time.Duration(stop)*time.Second); err != nil {
		t.Errorf("it %v", err)
	}
	if want := "/var/lib/" + strings.Join(unit["StateDirectory"], ""); settings.DataDir != want {
		t.Errorf("the data folder is %s, and what systemd makes for it %s", settings.DataDir, want)
	}
	for variable, value := range environ {
		if name, ok := strings.CutPrefix(value, "%d/"); ok && !slices.ContainsFunc(unit["LoadCredential"], func(c string) bool { return strings.HasPrefix(c, name+":") }) {
			t.Errorf("%s: no credential %s is loaded", variable, name)
		}
	}
	for name, want := range map[string]string{"Type": "notify", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "", "User": "agentgate", "UMask": "0077"} {
		if got := unit[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestImageHolds: the image is built as `make build` builds, by the Go that go.mod asks for
// or a later one, of all that is compiled in, and what it runs needs no shell.
func TestImageHolds(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.ReplaceAll(text, []byte("\\\n"), nil))
	}
	file, makefile := read("deploy/Dockerfile"), read("Makefile")
	_, image, found := strings.Cut(file, "\nFROM ${BASE}\n")
	if !found {
		t.Fatal("there is no last stage")
	}
	if regexp.MustCompile(`(?m)^RUN `).MatchString(image) {
		t.Error("something runs in the image, which has no shell")
	}
	for _, line := range []string{`USER 65532:65532`, `ENTRYPOINT ["/agentgw"]`, `CMD ["serve"]`, `STOPSIGNAL SIGTERM`, `VOLUME /data`} {
		if !strings.Contains(image, "\n"+line+"\n") {
			t.Errorf("the image has no %s", line)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)CMD (.*)$`).FindAllStringSubmatch(image, -1) {
		if !strings.HasPrefix(m[1], `["`) {
			t.Errorf("CMD %s takes a shell", m[1])
		}
	}
	flags := regexp.MustCompile(`GOFLAGS_BUILD := (.*)`).FindStringSubmatch(makefile)[1]
	flags = strings.NewReplacer("$(TAGS)", "nomsgpack", "$(VERSION)", "$VERSION").Replace(flags)
	if !strings.Contains(file, "go build "+flags+" ") || !strings.Contains(file, "CGO_ENABLED=0 ") || !strings.Contains(makefile, "TAGS    := nomsgpack\n") {
		t.Errorf("the image is not built with %s and without cgo, as make builds it", flags)
	}
	wants := regexp.MustCompile(`(?m)^go 1\.(\d+)\.(\d+)$`).FindStringSubmatch(read("go.mod"))
	has := regexp.MustCompile(`(?m)^ARG GO=golang:1\.(\d+)\.(\d+)-`).FindStringSubmatch(file)
	if wants == nil || has == nil {
		t.Fatalf("go.mod asks for %v, the image has %v", wants, has)
	}
	number := func(m []string) int {
		minor, _ := strconv.Atoi(m[1])
		patch, _ := strconv.Atoi(m[2])
		return minor*1000 + patch
	}
	if number(has) < number(wants) {
		t.Errorf("the image is built by an older Go than go.mod asks for: %s", has[0])
	}
	environ := map[string]string{}
	for _, m := range regexp.MustCompile(`(AGENTGATE_[A-Z_]+)=(\S+)`).FindAllStringSubmatch(image, -1) {
		environ[m[1]] = m[2]
	}
	settings, err := settingsOf(t.TempDir(), environ)
	if err != nil {
		t.Fatal(err)
	}
	if settings.Listen != ":8080" || !strings.Contains(image, "\nEXPOSE 8080\n") || !strings.HasPrefix(settings.DataDir, "/data/") {
		t.Errorf("the image listens at %s and has its data in %s", settings.Listen, settings.DataDir)
	}
}
