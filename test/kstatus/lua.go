package main

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Runs a health script of Argo CD on an object, with the interpreter and the few libraries that Argo CD runs it with:
// https://github.com/argoproj/argo-cd/blob/v3.1.0/util/lua/lua.go
func healthOf(object *unstructured.Unstructured, script string) (*answer, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", valueOf(state, object.Object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	result, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return nil, fmt.Errorf("the script returned no table")
	}
	return &answer{Status: lua.LVAsString(result.RawGetString("status")), Message: lua.LVAsString(result.RawGetString("message"))}, nil
}

func valueOf(state *lua.LState, value any) lua.LValue {
	switch typed := value.(type) {
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	case string:
		return lua.LString(typed)
	case []any:
		table := state.CreateTable(len(typed), 0)
		for _, one := range typed {
			table.Append(valueOf(state, one))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(typed))
		for name, one := range typed {
			table.RawSetString(name, valueOf(state, one))
		}
		return table
	}
	return lua.LNil
}
