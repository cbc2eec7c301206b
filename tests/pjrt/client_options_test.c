/* tests/pjrt/client_options_test.c -- options of clients that one platform has and others lack (weft_client_option). */
#include "client.h"

#include "cpu/platform.h"
#include "platform/registry.h"

static const weft_client_option wide_options[] = {
  {"any_value", WEFT_CLIENT_IGNORED, NULL},
  {"pretends", WEFT_CLIENT_FALSE, "nothing is pretended"},
  {"chosen", WEFT_CLIENT_DEVICES, NULL},
  {0},
};
static weft_platform_ops wide_ops;

/* The platform has options of its own, and no devices on request. */
static void use_wide_platform(void)
{
  wide_ops = cpu_platform_ops;
  wide_ops.name = "wide";
  wide_ops.client_options = wide_options;
  wide_ops.devices_by_request = false;
  plat_register(&wide_ops);
}

static PJRT_NamedValue named(const char *name, PJRT_NamedValue_Type type)
{
  return (PJRT_NamedValue){
    .struct_size = sizeof(PJRT_NamedValue), .name = name, .name_size = strlen(name), .type = type, .value_size = 1};
}

static int64_t device_count(PJRT_NamedValue *options, size_t count)
{
  PJRT_Client *client = CALL(Client_Create, .create_options = options, .num_options = count).client;
  size_t devices = CALL(Client_Devices, .client = client).num_devices;

  CALL(Client_Destroy, .client = client);
  return (int64_t)devices;
}

/* Other libraries know a device by the machine's number of it: JAX gives that number to them, and looks devices up by
 * theirs. */
static void check_hardware_ids(PJRT_NamedValue *chosen)
{
  PJRT_Client *client = CALL(Client_Create, .create_options = chosen, .num_options = 1).client;
  PJRT_Client_AddressableDevices_Args devices = CALL(Client_AddressableDevices, .client = client);

  for (size_t i = 0; i < devices.num_addressable_devices; i++) {
    PJRT_Device *device = devices.addressable_devices[i];
    int number = (int)chosen->int64_array_value[i];
    T_EQ_INT(CALL(Device_LocalHardwareId, .device = device).local_hardware_id, number);
    T_TRUE(CALL(Client_LookupAddressableDevice, .client = client, .local_hardware_id = number).addressable_device ==
           device);
  }
  FAILS("No matching device found for local_hardware_id 0", Client_LookupAddressableDevice, .client = client,
        .local_hardware_id = 0);
  CALL(Client_Destroy, .client = client);
}

TEST(a_platform_knows_its_own_options)
{
  static const int64_t first_two[] = {0, 1}, others[] = {5, 2, 7}, twice[] = {1, 2, 1}, none[] = {0, -1};
  PJRT_NamedValue options[] = {named("any_value", PJRT_NamedValue_kFloat), named("pretends", PJRT_NamedValue_kBool),
                               named("chosen", PJRT_NamedValue_kInt64List)};

  options[2].int64_array_value = first_two;
  options[2].value_size = 2;
  T_EQ_INT(device_count(options, 3), 2);
  options[2].int64_array_value = others;
  options[2].value_size = 3;
  T_EQ_INT(device_count(options, 3), 3);
  check_hardware_ids(&options[2]);
  options[2].int64_array_value = twice;
  FAILS("option chosen has device 1 twice", Client_Create, .create_options = options, .num_options = 3);
  options[2].int64_array_value = none;
  options[2].value_size = 2;
  FAILS("option chosen has -1, which is no device", Client_Create, .create_options = options, .num_options = 3);
  options[2] = named("chosen", PJRT_NamedValue_kInt64);
  FAILS("option chosen must be a list of 1 to 256 integers", Client_Create, .create_options = options,
        .num_options = 3);
  options[1].bool_value = true;
  FAILS("option pretends: nothing is pretended", Client_Create, .create_options = options, .num_options = 2);
  options[0] = named("allocator", PJRT_NamedValue_kInt64);
  FAILS("unknown option \"allocator\"", Client_Create, .create_options = options, .num_options = 1);
}

/* WEFT_NUM_DEVICES is for platforms whose devices are made on request. */
TEST(the_environment_asks_for_devices_where_they_are_made_on_request)
{
  int64_t own = device_count(NULL, 0);

  setenv("WEFT_NUM_DEVICES", "3", 1);
  T_EQ_INT(device_count(NULL, 0), own);
  wide_ops.devices_by_request = true;
  T_EQ_INT(device_count(NULL, 0), 3);
  wide_ops.devices_by_request = false;
  unsetenv("WEFT_NUM_DEVICES");
}

int main(void)
{
  const struct CMUnitTest tests[] = {UNIT(a_platform_knows_its_own_options),
                                     UNIT(the_environment_asks_for_devices_where_they_are_made_on_request)};

  unsetenv("WEFT_PLATFORM");
  unsetenv("WEFT_NUM_DEVICES");
  unsetenv("XLA_FLAGS");
  use_wide_platform();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
