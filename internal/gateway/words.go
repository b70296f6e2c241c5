package gateway

import (
	"log/slog"
	"maps"
	"slices"

	"agentgw/internal/identity"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func stringAttr(name, value string) slog.Attr { return slog.String(name, value) }

// levelOf says how loud a refusal is: a fault of the gateway's own wakes
// somebody, an upstream's does not.
func levelOf(e *Error) slog.Level {
	if e.Code == Internal || e.Code == ReceiptUnavailable {
		return slog.LevelError
	}
	return slog.LevelWarn
}

func (g *Gateway) proxies() identity.Proxies { return identity.Proxies(g.settings.TrustedProxies) }
