package identity

import (
	"slices"
	"strings"
)

// AllowsService reports whether service is within the key's scope by its list
// of services alone. A key without services allows none.
func (k *Key) AllowsService(service string) bool {
	return slices.Contains(k.Services, Everything) || slices.Contains(k.Services, service)
}

// AllServices reports whether the key's services are "*". Only such a key may
// learn that a name does not exist.
func (k *Key) AllServices() bool { return slices.Contains(k.Services, Everything) }

// Allows reports whether the key may call action of service: the service is in
// its list, and some pattern matches service.action where there are patterns.
func (k *Key) Allows(service, action string) bool {
	return k.allows(service, func(p string) bool { return matchAction(p, service, action) })
}

// AllowsEvery reports whether the key covers service.*, actions yet to be
// declared included. That is what a request needs that matches no action.
func (k *Key) AllowsEvery(service string) bool {
	return k.allows(service, func(p string) bool { return matchEvery(p, service) })
}

func (k *Key) allows(service string, match func(pattern string) bool) bool {
	return k.AllowsService(service) && (len(k.Actions) == 0 || slices.ContainsFunc(k.Actions, match))
}

// AllUsers reports whether the key may act for anybody.
func (k *Key) AllUsers() bool { return slices.Contains(k.Users, Everything) }

// AllowsUser reports whether the key may act for user. The empty user is a call
// on nobody's behalf, which only a key for every user may make. Names are
// compared byte for byte: neither case nor Unicode forms are folded, since two
// spellings that a directory elsewhere tells apart must not become one here.
func (k *Key) AllowsUser(user string) bool {
	if k.AllUsers() {
		return true
	}
	_, listed := k.position(user)
	return listed && user != ""
}

// position returns where user stands in the key's list.
func (k *Key) position(user string) (int, bool) {
	if k.rank != nil {
		i, ok := k.rank[user]
		return i, ok
	}
	i := slices.Index(k.Users, user)
	return i, i >= 0
}

// matchAction reports whether an action pattern matches. A pattern is two globs
// joined by a dot, one for the service and one for the action, in which '*'
// stands for any run of characters. Both names may hold dots themselves, so
// every dot of the pattern is tried as the joint; but a star never reaches over
// the joint, or github.* would also cover a service named github.admin. A
// pattern without a dot has its joint within a star: * covers everything.
func matchAction(pattern, service, action string) bool {
	return eachJoint(pattern, func(s, a string) bool { return glob(s, service) && glob(a, action) })
}

// matchEvery reports whether a pattern matches every action of service.
func matchEvery(pattern, service string) bool {
	return eachJoint(pattern, func(s, a string) bool {
		return a != "" && strings.Trim(a, Everything) == "" && glob(s, service)
	})
}

// eachJoint reports whether match holds for some way to part pattern in two.
func eachJoint(pattern string, match func(service, action string) bool) bool {
	joint, width := byte('.'), 1
	if strings.IndexByte(pattern, '.') < 0 {
		joint, width = '*', 0
	}
	for i := range len(pattern) {
		if pattern[i] != joint {
			continue
		}
		// A star that holds the joint is the end of one glob and the
		// beginning of the other.
		if match(pattern[:i+1-width], pattern[i+width:]) {
			return true
		}
	}
	return false
}

// glob reports whether s matches pattern, in which '*' matches any run of
// characters and everything else itself. It backs up to the last star only, so
// its time is at most the product of the two lengths.
func glob(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
