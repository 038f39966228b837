package cuda

import "strings"

// symbol is a call of the driver API.
type symbol uint8

const (
	cuInit symbol = iota
	cuGetErrorName
	cuGetErrorString
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetUuid
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDeviceCanAccessPeer
	cuDeviceGetP2PAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuCtxSynchronize
	cuCtxEnablePeerAccess
	cuCtxGetStreamPriorityRange
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostRegister
	cuMemHostUnregister
	cuMemHostGetDevicePointer
	cuPointerGetAttributes
	cuIpcGetMemHandle
	cuIpcOpenMemHandle
	cuIpcCloseMemHandle
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyAsync
	cuMemsetD8Async
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncGetAttribute
	cuLaunchKernel
	cuLaunchKernelEx
	cuStreamCreateWithPriority
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamQuery
	cuStreamWaitEvent
	cuStreamBeginCapture
	cuStreamEndCapture
	cuStreamGetCaptureInfo
	cuThreadExchangeStreamCaptureMode
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventSynchronize
	cuEventElapsedTime
	cuGraphInstantiate
	cuGraphDestroy
	cuGraphLaunch
	cuGraphExecDestroy
)

// exported gives the names under which drivers export each call with the
// signature that is used here, the preferred one first. cuda.h maps the plain
// names to these. The arguments of a second name are the same, or fewer: what
// is passed beyond them is ignored.
var exported = [...][]string{
	cuInit:                            {"cuInit"},
	cuGetErrorName:                    {"cuGetErrorName"},
	cuGetErrorString:                  {"cuGetErrorString"},
	cuDriverGetVersion:                {"cuDriverGetVersion"},
	cuDeviceGetCount:                  {"cuDeviceGetCount"},
	cuDeviceGet:                       {"cuDeviceGet"},
	cuDeviceGetName:                   {"cuDeviceGetName"},
	cuDeviceGetUuid:                   {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}, // the first, from 11.4 on, knows MIG
	cuDeviceTotalMem:                  {"cuDeviceTotalMem_v2"},
	cuDeviceGetAttribute:              {"cuDeviceGetAttribute"},
	cuDeviceCanAccessPeer:             {"cuDeviceCanAccessPeer"},
	cuDeviceGetP2PAttribute:           {"cuDeviceGetP2PAttribute"},
	cuDevicePrimaryCtxRetain:          {"cuDevicePrimaryCtxRetain"},
	cuDevicePrimaryCtxRelease:         {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"},
	cuCtxPushCurrent:                  {"cuCtxPushCurrent_v2"},
	cuCtxPopCurrent:                   {"cuCtxPopCurrent_v2"},
	cuCtxSynchronize:                  {"cuCtxSynchronize"},
	cuCtxEnablePeerAccess:             {"cuCtxEnablePeerAccess"},
	cuCtxGetStreamPriorityRange:       {"cuCtxGetStreamPriorityRange"},
	cuMemGetInfo:                      {"cuMemGetInfo_v2"},
	cuMemAlloc:                        {"cuMemAlloc_v2"},
	cuMemFree:                         {"cuMemFree_v2"},
	cuMemHostRegister:                 {"cuMemHostRegister_v2", "cuMemHostRegister"},
	cuMemHostUnregister:               {"cuMemHostUnregister"},
	cuMemHostGetDevicePointer:         {"cuMemHostGetDevicePointer_v2"},
	cuPointerGetAttributes:            {"cuPointerGetAttributes"},
	cuIpcGetMemHandle:                 {"cuIpcGetMemHandle"},
	cuIpcOpenMemHandle:                {"cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"},
	cuIpcCloseMemHandle:               {"cuIpcCloseMemHandle"},
	cuMemcpyHtoDAsync:                 {"cuMemcpyHtoDAsync_v2"},
	cuMemcpyDtoHAsync:                 {"cuMemcpyDtoHAsync_v2"},
	cuMemcpyAsync:                     {"cuMemcpyAsync"},
	cuMemsetD8Async:                   {"cuMemsetD8Async"},
	cuModuleLoadDataEx:                {"cuModuleLoadDataEx"},
	cuModuleUnload:                    {"cuModuleUnload"},
	cuModuleGetFunction:               {"cuModuleGetFunction"},
	cuFuncGetAttribute:                {"cuFuncGetAttribute"},
	cuLaunchKernel:                    {"cuLaunchKernel"},
	cuLaunchKernelEx:                  {"cuLaunchKernelEx"},
	cuStreamCreateWithPriority:        {"cuStreamCreateWithPriority"},
	cuStreamDestroy:                   {"cuStreamDestroy_v2"},
	cuStreamSynchronize:               {"cuStreamSynchronize"},
	cuStreamQuery:                     {"cuStreamQuery"},
	cuStreamWaitEvent:                 {"cuStreamWaitEvent"},
	cuStreamBeginCapture:              {"cuStreamBeginCapture_v2"},
	cuStreamEndCapture:                {"cuStreamEndCapture"},
	cuStreamGetCaptureInfo:            {"cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo"},
	cuThreadExchangeStreamCaptureMode: {"cuThreadExchangeStreamCaptureMode"},
	cuEventCreate:                     {"cuEventCreate"},
	cuEventDestroy:                    {"cuEventDestroy_v2"},
	cuEventRecord:                     {"cuEventRecord"},
	cuEventQuery:                      {"cuEventQuery"},
	cuEventSynchronize:                {"cuEventSynchronize"},
	cuEventElapsedTime:                {"cuEventElapsedTime"},
	cuGraphInstantiate:                {"cuGraphInstantiateWithFlags"},
	cuGraphDestroy:                    {"cuGraphDestroy"},
	cuGraphLaunch:                     {"cuGraphLaunch"},
	cuGraphExecDestroy:                {"cuGraphExecDestroy"},
}

// name is the call as its documentation has it, without the version.
func (s symbol) name() string {
	name, version, versioned := strings.Cut(exported[s][0], "_v")
	if !versioned || strings.Trim(version, "0123456789") != "" {
		return exported[s][0]
	}
	return name
}
