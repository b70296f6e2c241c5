package gateway

import (
	"encoding/json"
	"maps"
	"slices"
)

// serviceView is a service as a key may call it.
type serviceView struct {
	Name    string       `json:"name"`
	Actions []actionView `json:"actions"`
}

type actionView struct {
	Name   string               `json:"name"`
	Method string               `json:"method"`
	Path   string               `json:"path"`
	Params map[string]paramView `json:"params"`
}

type paramView struct {
	In       string          `json:"in"`
	Required bool            `json:"required"`
	Schema   json.RawMessage `json:"schema"`
}

// services lists what the caller's key may call, and nothing else.
func (g *Gateway) services(call *Call) map[string][]serviceView {
	list := []serviceView{}
	for _, name := range slices.Sorted(maps.Keys(call.view.registry.Services)) {
		if v, ok := describe(call, name); ok {
			list = append(list, v)
		}
	}
	return map[string][]serviceView{"services": list}
}

// describe is a service as call's key may call it, unless it may not.
func describe(call *Call, name string) (serviceView, bool) {
	service := call.view.registry.Services[name]
	if service == nil || !call.Key.AllowsService(name) {
		return serviceView{}, false
	}
	v := serviceView{Name: name, Actions: []actionView{}}
	for _, a := range slices.Sorted(maps.Keys(service.Actions)) {
		if !call.Key.Allows(name, a) {
			continue
		}
		action := service.Actions[a]
		params := map[string]paramView{}
		for _, p := range action.Params() {
			params[p.Name] = paramView{In: p.In, Required: p.Required, Schema: p.Schema}
		}
		v.Actions = append(v.Actions, actionView{Name: a, Method: action.Method, Path: action.Path(), Params: params})
	}
	return v, true
}
