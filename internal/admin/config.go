package admin

import (
	"errors"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// Config is what the gateway serves by, and whether that is what the registry
// file says.
type Config struct {
	File      string
	Running   string // SHA-256 of the file that is in force, in hex
	Since     time.Time
	OnDisk    string // SHA-256 of the file as it is now; "" where it cannot be read
	OnDiskErr error
	Failure   *ReloadFailure // nil: the last reload succeeded
	Settings  []config.Value // no secret among them
}

// ReloadFailure is why the registry file is not in force.
type ReloadFailure struct {
	Err   error     // of the last reload
	At    time.Time // of the first that failed with this
	Since time.Time // of the first that failed after one that did not
}

type configView struct {
	File     string        `json:"file"`
	Running  stateView     `json:"running"`
	OnDisk   stateView     `json:"on_disk"`
	InForce  bool          `json:"in_force"` // the file on disk is the one that runs
	Failure  *failureView  `json:"last_error"`
	Settings []settingView `json:"settings"`
}

type stateView struct {
	SHA256 string `json:"sha256,omitempty"`
	Since  string `json:"since,omitempty"`
	Error  string `json:"error,omitempty"`
}

type failureView struct {
	At       string        `json:"at"`
	Since    string        `json:"since"`
	Problems []problemView `json:"problems"`
}

type problemView struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	What   string `json:"what"`
}

type settingView struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Later  string `json:"after_restart,omitempty"`
}

func viewConfig(c Config) configView {
	v := configView{
		File: c.File, Running: stateView{SHA256: c.Running, Since: stamp(c.Since)}, OnDisk: stateView{SHA256: c.OnDisk},
		InForce: c.OnDisk == c.Running, Settings: []settingView{},
	}
	if c.OnDiskErr != nil {
		v.OnDisk.Error = c.OnDiskErr.Error()
	}
	if c.Failure != nil {
		v.Failure = &failureView{At: stamp(c.Failure.At), Since: stamp(c.Failure.Since), Problems: viewProblems(c.Failure.Err)}
	}
	for _, s := range c.Settings {
		v.Settings = append(v.Settings, settingView{s.Name, s.Text, s.Source, s.AfterRestart})
	}
	return v
}

// viewProblems lists what is wrong, each with its place where it has one.
func viewProblems(err error) []problemView {
	var list []problemView
	var ps registry.Problems
	if errors.As(err, &ps) {
		for _, p := range ps {
			list = append(list, problemView{p.File, p.Line, p.Column, p.Path, p.What})
		}
	}
	if list == nil {
		list = []problemView{{What: err.Error()}}
	}
	return list
}
