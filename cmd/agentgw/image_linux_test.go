package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentgw/internal/freeport"
)

// bind mounts from at to, with more flags of mount(2), for one test.
func bind(t *testing.T, from, to string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("the image's root was not tried: nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestTheImageRuns does by hand what the Dockerfile says, and runs the binary in a root
// that holds it and nothing else, read-only, as the user of the image, with its
// environment: a call is served, the health check of the image says so, and what it wrote
// verifies. The base image and its certificates are not part of it.
func TestTheImageRuns(t *testing.T) {
	if rounds(0, 1) == 0 {
		t.Skip("the image's root is tried by make drills: it takes the binary as it is shipped")
	}
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, image, _ := strings.Cut(strings.ReplaceAll(string(text), "\\\n", ""), "\nFROM ${BASE}\n")
	var uid, gid uint32
	if _, err := fmt.Sscanf(image[strings.Index(image, "USER "):], "USER %d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	environ := regexp.MustCompile(`AGENTGATE_[A-Z_]+=\S+`).FindAllString(image, -1)

	folder := t.TempDir()
	root, data, conf := filepath.Join(folder, "root"), filepath.Join(folder, "data"), filepath.Join(folder, "conf")
	for _, dir := range []string{root + "/data", root + "/etc/agentgate/registry", data, conf} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program(t, root)
	if err := os.Chown(data, int(uid), int(gid)); err != nil {
		t.Skipf("the image's root was not tried: it takes root: %v", err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }))
	defer upstream.Close()
	registry := fmt.Sprintf("version: 1\nservices:\n  tools:\n    base_url: %s\n    allow_private: true\n    actions:\n      get: {method: GET, path: /x}\n", upstream.URL)
	if err := os.WriteFile(filepath.Join(conf, "registry.yaml"), []byte(registry), 0o644); err != nil {
		t.Fatal(err)
	}
	bind(t, root, root, unix.MS_RDONLY)
	bind(t, data, root+"/data", 0)
	bind(t, conf, root+"/etc/agentgate/registry", unix.MS_RDONLY)

	listen, admin := freeport.Address(t), freeport.Address(t)
	var said bytes.Buffer
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/agentgw", args...)
		cmd.Path, cmd.Err, cmd.Dir = "/agentgw", nil, "/" // looked up here, it is not there
		cmd.Env = append(slices.Clone(environ), "AGENTGATE_LISTEN="+listen, "AGENTGATE_ADMIN_LISTEN="+admin)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		cmd.Stdout, cmd.Stderr = &said, &said
		return cmd
	}
	gateway := inside("serve")
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gateway.Process.Kill() }()
	if !ready(admin) {
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
		t.Fatalf("it does not get ready:\n%s", said.String())
	}
	key, err := os.ReadFile(filepath.Join(data, "agentgate", "first-key"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest("POST", "http://"+listen+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a call: %s", res.Status)
	}
	check := regexp.MustCompile(`HEALTHCHECK .*CMD \["/agentgw", "(\w+)"\]`).FindStringSubmatch(image)
	health := inside(check[1])
	var healthSaid bytes.Buffer
	health.Stdout, health.Stderr = &healthSaid, &healthSaid
	if err := health.Run(); err != nil || healthSaid.String() != "ok\n" {
		t.Errorf("the health check: %v, %q", err, healthSaid.String())
	}
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Wait(); err != nil {
		t.Errorf("it ends with %v:\n%s", err, said.String())
	}
	if strings.Contains(said.String(), "read-only file system") {
		t.Errorf("it wanted to write where nothing can be written:\n%s", said.String())
	}
}
