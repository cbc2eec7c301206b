/* pjrt/ffi.c -- the FFI extension: users' types, data of one execution, and handlers of custom calls. */
#include <config.h>

#include <string.h>

#include "pjrt/extensions.h"
#include "runtime/ffi.h"
#include "runtime/untyped.h"

static PJRT_Error *type_register(PJRT_FFI_Type_Register_Args *args)
{
  return pjrt_error(rt_ffi_type_register(args->type_name, args->type_name_size, &args->type_id,
                                         args->type_info ? args->type_info->deleter : NULL));
}

static PJRT_Error *user_data_add(PJRT_FFI_UserData_Add_Args *args)
{
  if (!args->context) return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "no execution context was given"));
  return pjrt_error(rt_ffi_user_data_add(args->context->data, args->user_data.type_id, args->user_data.data, NULL));
}

static PJRT_Error *register_handler(PJRT_FFI_Register_Handler_Args *args)
{
  XLA_FFI_Handler_Bundle bundle = {.execute = (XLA_FFI_Handler *)args->handler};

  if (rt_ffi_is_device_platform(args->platform_name, args->platform_name_size))
    return pjrt_error(rt_ffi_register_on_device(args->target_name, args->target_name_size,
                                                &(rt_ffi_device_handler){bundle, args->traits}));
  return pjrt_error(rt_ffi_register(args->target_name, args->target_name_size, &bundle));
}

PJRT_Error *pjrt_ffi_register(PJRT_Weft_FfiRegister_Args *args)
{
  XLA_FFI_Handler_Bundle bundle = {.instantiate = (XLA_FFI_Handler *)args->handlers[XLA_FFI_ExecutionStage_INSTANTIATE],
                                   .prepare = (XLA_FFI_Handler *)args->handlers[XLA_FFI_ExecutionStage_PREPARE],
                                   .initialize = (XLA_FFI_Handler *)args->handlers[XLA_FFI_ExecutionStage_INITIALIZE],
                                   .execute = (XLA_FFI_Handler *)args->handlers[XLA_FFI_ExecutionStage_EXECUTE]};

  if (PJRT_HAS(args, untyped) && args->untyped)
    return pjrt_error(
      rt_untyped_register(args->target_name, args->target_name_size, (rt_untyped_fn *)(uintptr_t)args->untyped));
  if (PJRT_HAS(args, platform_size) && rt_ffi_is_device_platform(args->platform, args->platform_size))
    return pjrt_error(
      rt_ffi_register_on_device(args->target_name, args->target_name_size,
                                &(rt_ffi_device_handler){bundle, PJRT_HAS(args, traits) ? args->traits : 0}));
  return pjrt_error(rt_ffi_register(args->target_name, args->target_name_size, &bundle));
}

PJRT_FFI_Extension pjrt_ffi_extension = {
    .base = {.struct_size = sizeof(PJRT_FFI_Extension), .type = PJRT_Extension_Type_FFI},
    .type_register = type_register,
    .user_data_add = user_data_add,
    .register_handler = register_handler};
