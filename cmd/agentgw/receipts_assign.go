package main

import (
	"fmt"
	"slices"

	"agentgw/internal/receipts"
)

// assignment says by what each of several logs is verified.
type assignment struct {
	path    string
	origin  string // that it claims; "": none
	err     error  // why it could not be asked
	vkey    string
	unknown bool // no key of this origin was given, and vkey is one of another log
	anchor  []byte
}

// several is what verify is given, and what comes of it.
type several struct {
	vkeys []string
	pins  []pin
	of    map[string]string // a key's origin: the key
	logs  []assignment
	lost  []lostLog
}

// lostLog is a log of which there is a key, or an anchor, and nothing else.
type lostLog struct {
	Origin string `json:"origin"`
	VKey   string `json:"vkey"`
	Anchor string `json:"anchor,omitempty"` // the file that says that there was one
}

// assign gives each log its key and its anchor, by the origins that they have in them. A
// log that claims another than its own gets another's key, by which it does not hold.
func (s *several) assign(paths []string) error {
	s.of = map[string]string{}
	for _, vkey := range s.vkeys {
		origin, err := receipts.OriginOfKey(vkey)
		if err != nil {
			return err
		}
		if other := s.of[origin]; other != "" && other != vkey {
			return fmt.Errorf("two keys are given of the log %s: give the one that is trusted, which vouches for those after it", origin)
		}
		s.of[origin] = vkey
	}
	paths, there := slices.Clone(paths), map[string]string{}
	claimed := map[string]bool{}
	for _, path := range paths {
		a := assignment{path: path}
		if _, isProof := readProof(path); isProof {
			return fmt.Errorf("%s: the proof of one receipt is verified by itself", path)
		}
		a.origin, a.err = receipts.ClaimedOrigin(path)
		if other, twice := there[a.origin]; twice && a.origin != "" {
			return fmt.Errorf("%s and %s are of the same log or tree, %s: give it once", other, path, a.origin)
		}
		there[a.origin] = path
		a.vkey = s.of[receipts.LogOfTree(a.origin)]
		claimed[receipts.LogOfTree(a.origin)] = a.vkey != ""
		s.logs = append(s.logs, a)
	}
	var free []string // keys of which no log is there
	for _, vkey := range s.vkeys {
		origin, _ := receipts.OriginOfKey(vkey)
		if !claimed[origin] && !slices.Contains(free, vkey) {
			free = append(free, vkey)
		}
	}
	for i := range s.logs {
		if a := &s.logs[i]; a.vkey == "" {
			// The first that is left, or any: a log that holds by none of them is
			// found out by any of them.
			a.vkey, a.unknown = append(free, s.vkeys[0])[0], true
		}
	}
	for _, vkey := range free {
		origin, _ := receipts.OriginOfKey(vkey)
		s.lost = append(s.lost, lostLog{Origin: origin, VKey: vkey})
	}
	return s.pin()
}

// pin gives the anchors to those that they are of.
func (s *several) pin() error {
	for _, p := range s.pins {
		origin := receipts.OriginOfCheckpoint(p.signed)
		log := receipts.LogOfTree(origin)
		if origin == "" {
			return fmt.Errorf("--anchor %s: not a checkpoint", p.file)
		}
		if s.of[log] == "" {
			return fmt.Errorf("--anchor %s: of the log %s, of which no key is given", p.file, log)
		}
		at := slices.IndexFunc(s.logs, func(a assignment) bool { return a.origin == origin })
		if at < 0 { // of a tenant's tree: the whole log has it too
			at = slices.IndexFunc(s.logs, func(a assignment) bool { return a.origin == log })
		}
		lost := slices.IndexFunc(s.lost, func(l lostLog) bool { return l.Origin == log })
		switch {
		case at >= 0 && s.logs[at].anchor != nil:
			return fmt.Errorf("--anchor %s: a second one for %s: give the newest", p.file, s.logs[at].path)
		case at >= 0:
			s.logs[at].anchor = p.signed
		case lost >= 0:
			s.lost[lost].Anchor = p.file
		default:
			return fmt.Errorf("--anchor %s: nothing that is given is of %s", p.file, origin)
		}
	}
	return nil
}
